// The same in C++, where a destructor closes what is open: first IMAGE
#include <dure.h>

#include <fcntl.h>

#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>

namespace {

std::int64_t must(std::int64_t result)
{
    if (result < 0)
        throw std::runtime_error(dure_last_error());
    return result;
}

// A handle that closes itself.
template <typename T, int (*close)(T *)> struct Close {
    void operator()(T *handle) const { close(handle); }
};
template <typename T, int (*close)(T *)> using Handle = std::unique_ptr<T, Close<T, close>>;

using Session = Handle<dure_session, dure_session_close>;
using File = Handle<dure_file, dure_close>;

void notes(dure_volume *volume)
{
    dure_session *opened = nullptr;
    must(dure_session_open(volume, 0, 0, nullptr, 0, 022, &opened));
    Session session(opened);
    dure_file *made = nullptr;
    must(dure_open(session.get(), "/today", O_RDWR | O_CREAT, 0644, &made));
    File file(made);
    std::string text = "sown together";
    must(dure_pwrite(file.get(), text.data(), text.size(), 0));
    must(dure_fdatasync(file.get()));
    std::string found(text.size(), ' ');
    must(dure_pread(file.get(), &found[0], found.size(), 0));
    std::cout << found << '\n';
}

} // namespace

int main(int argc, char **argv)
try {
    dure_volume *volume = nullptr;
    const char *path = argc > 1 ? argv[1] : "volume.img";
    must(dure_volume_create(path, 64 << 20, nullptr, nullptr, &volume));
    notes(volume);
    // What was not made durable before is now, or this says so.
    must(dure_volume_close(volume));
    return 0;
} catch (const std::exception &error) {
    std::cerr << error.what() << '\n';
    return 1;
}
