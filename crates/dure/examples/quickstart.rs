//! A volume in a file, in a minute: `cargo run -p durefs --example quickstart -- /tmp/volume.img`.

use std::io::Write;

use dure::{CreateOptions, MountOptions, OpenOptions, Volume};

#[expect(clippy::print_stdout, reason = "an example shows what it does")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args()
        .nth(1)
        .ok_or("give the path of an image file to make")?;

    // Make a volume of 64 MiB and use it.
    let options = CreateOptions {
        image_bytes: Some(64 << 20),
        ..CreateOptions::default()
    };
    let volume = Volume::create(&path, &options)?;
    let session = volume.root();
    session.create_dir_all("journal/2026")?;
    let log = OpenOptions::new()
        .append(true)
        .create(true)
        .open(&session, "journal/2026/log")?;
    writeln!(&log, "the first line")?;
    // From here on the line survives a power cut, with the names that lead to it.
    log.sync_all()?;
    drop((log, session));
    volume.close()?;
    drop(volume);

    // Open it again and look.
    let volume = Volume::open(&path, MountOptions::default())?;
    let session = volume.root();
    for entry in session.read_dir("journal/2026")? {
        let entry = entry?;
        let file = session.at(&session.open("journal/2026")?)?;
        let size = file.metadata(entry.file_name())?.len();
        println!("{} has {size} bytes", entry.file_name().display());
    }
    print!(
        "{}",
        String::from_utf8_lossy(&session.read("journal/2026/log")?)
    );
    Ok(())
}
