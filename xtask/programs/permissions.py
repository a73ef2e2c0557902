"""A table of calls by several users on many objects, and what each answers and leaves behind.

    permissions.py FOLDER [EVERY]      prints `CASE: ANSWER | STATE` a line, sorted as made

Run on two file systems, the two outputs are compared. FOLDER is a directory of the file system,
empty and open to all. All objects are made first, as root; then one child per user makes its calls
with that user's ids and without privileges; then root looks at what they left. EVERY: only each
EVERYth case.
"""

import ctypes
import errno
import os
import stat
import struct
import sys

OWNER, MEMBER, OTHER, GROUP = 50_001, 50_002, 50_003, 60_001
# Name -> user, group, further groups. The owner is once in the group of the file, once not.
USERS = {
    'root': (0, 0, []),
    'owner': (OWNER, OWNER, [GROUP]),
    'stranger': (OWNER, OWNER, []),
    'member': (MEMBER, MEMBER, [GROUP]),
    'other': (OTHER, OTHER, []),
}
ACCESS, DEFAULT = 'system.posix_acl_access', 'system.posix_acl_default'
LIBC = ctypes.CDLL(None, use_errno=True)


def acl(owner, group, other, users=(), groups=(), mask=None):
    """The bytes of a list: version 2, then tag, permissions, id."""
    entries = [(1, owner, 0xffff_ffff)]
    entries += [(2, bits, who) for who, bits in users]
    entries += [(4, group, 0xffff_ffff)]
    entries += [(8, bits, who) for who, bits in groups]
    entries += [(16, mask, 0xffff_ffff)] if mask is not None else []
    entries += [(32, other, 0xffff_ffff)]
    return struct.pack('<I', 2) + b''.join(struct.pack('<HHI', *entry) for entry in entries)


USER_LIST = acl(6, 4, 0, users=[(OTHER, 6)], mask=6)
MASKED_LIST = acl(6, 4, 4, users=[(OTHER, 7)], groups=[(GROUP, 6)], mask=4)
GROUP_LIST = acl(6, 0, 0, groups=[(GROUP, 2)], mask=6)
SMALL_LIST = acl(6, 4, 0)
WRONG_LIST = acl(6, 4, 0, users=[(OTHER, 6)])  # no mask

# Mode, access list.
FILES = [(mode, None) for mode in (
    0o644, 0o600, 0o640, 0o666, 0o000, 0o444, 0o060, 0o006, 0o755, 0o4755, 0o2755, 0o2644, 0o6777,
    0o4666, 0o2666, 0o1777)] + [(0o640, USER_LIST), (0o644, MASKED_LIST), (0o660, GROUP_LIST)]
DIRECTORIES = [(mode, None) for mode in (
    0o755, 0o700, 0o777, 0o1777, 0o2775, 0o2777, 0o3777, 0o555, 0o711, 0o744, 0o000)] + [
    (0o750, acl(7, 5, 0, users=[(OTHER, 7)], mask=7)),
    (0o777, 'inherited')]


def raw(result):
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def opened(path, flags, then=None):
    fd = os.open(path, flags, 0o666)
    try:
        return then(fd) if then else None
    finally:
        os.close(fd)


def on_file(path):
    """Name -> call on the file at `path`."""
    calls = {
        'open-r': lambda: opened(path, os.O_RDONLY, lambda fd: os.read(fd, 10)),
        'open-w': lambda: opened(path, os.O_WRONLY),
        'open-rw': lambda: opened(path, os.O_RDWR),
        'open-trunc': lambda: opened(path, os.O_WRONLY | os.O_TRUNC),
        'open-r-trunc': lambda: opened(path, os.O_RDONLY | os.O_TRUNC),
        'open-noatime': lambda: opened(path, os.O_RDONLY | os.O_NOATIME),
        'open-creat': lambda: opened(path, os.O_WRONLY | os.O_CREAT),
        'open-excl': lambda: opened(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL),
        'open-path': lambda: opened(path, os.O_PATH),
        'open-directory': lambda: opened(path, os.O_RDONLY | os.O_DIRECTORY),
        'write': lambda: opened(path, os.O_WRONLY, lambda fd: os.write(fd, b'x')),
        'append': lambda: opened(path, os.O_WRONLY | os.O_APPEND, lambda fd: os.write(fd, b'x')),
        'ftruncate': lambda: opened(path, os.O_WRONLY, lambda fd: os.ftruncate(fd, 3)),
        'fallocate': lambda: opened(path, os.O_WRONLY, lambda fd: os.posix_fallocate(fd, 0, 100)),
        'fchmod': lambda: opened(path, os.O_RDONLY, lambda fd: os.fchmod(fd, 0o611)),
        'fchown': lambda: opened(path, os.O_RDONLY, lambda fd: os.fchown(fd, -1, GROUP)),
        'truncate': lambda: os.truncate(path, 3),
        'truncate-same': lambda: os.truncate(path, 10),
        'stat': lambda: os.stat(path).st_size,
        'readlink': lambda: os.readlink(path),
        'link': lambda: os.link(path, path + '.link'),
        'unlink': lambda: os.unlink(path),
        'rename': lambda: os.rename(path, path + '.moved'),
        'rmdir': lambda: os.rmdir(path),
        'utime-now': lambda: os.utime(path),
        'utime-set': lambda: os.utime(path, (1, 2)),
        'as-directory': lambda: os.stat(path + '/x'),
    }
    for name, bits in (('r', os.R_OK), ('w', os.W_OK), ('x', os.X_OK)):
        calls[f'access-{name}'] = lambda bits=bits: os.access(path, bits)
    for mode in (0o600, 0o777, 0o4711, 0o2711, 0o2666, 0o6777, 0o1644):
        calls[f'chmod-{mode:o}'] = lambda mode=mode: os.chmod(path, mode)
    owners = {'none': (-1, -1), 'user': (OWNER, -1), 'group': (-1, GROUP), 'same': (OWNER, GROUP),
              'own-group': (-1, OWNER), 'foreign': (OTHER, -1), 'foreign-group': (-1, OTHER)}
    for name, (user, group) in owners.items():
        calls[f'chown-{name}'] = lambda user=user, group=group: os.chown(path, user, group)
    calls.update(attributes(path))
    return calls


def attributes(path):
    """Extended attributes of every namespace, and lists."""
    calls = {'listxattr': lambda: sorted(os.listxattr(path))}
    for name in ('user.there', 'user.none', 'trusted.there', 'trusted.none', 'security.there',
                 'security.none', 'system.none', 'none.none', 'plain', 'user.', ACCESS, DEFAULT):
        calls[f'getxattr {name}'] = lambda name=name: os.getxattr(path, name)
        calls[f'removexattr {name}'] = lambda name=name: os.removexattr(path, name)
        if name not in (ACCESS, DEFAULT):
            calls[f'setxattr {name}'] = lambda name=name: os.setxattr(path, name, b'new')
    calls['setxattr-create'] = lambda: os.setxattr(path, 'user.there', b'n', os.XATTR_CREATE)
    calls['setxattr-replace'] = lambda: os.setxattr(path, 'user.none', b'n', os.XATTR_REPLACE)
    lists = {'user': USER_LIST, 'group': GROUP_LIST, 'small': SMALL_LIST, 'wrong': WRONG_LIST,
             'empty': struct.pack('<I', 2), 'garbage': b'garbage', 'none': b''}
    for name, value in lists.items():
        calls[f'setfacl {name}'] = lambda value=value: os.setxattr(path, ACCESS, value)
        calls[f'setfacl-default {name}'] = lambda value=value: os.setxattr(path, DEFAULT, value)
    return calls


def make(path, flags=os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode=0o666):
    return opened_with(path, flags, mode)


def opened_with(path, flags, mode):
    os.close(os.open(path, flags, mode))


def on_directory(path):
    """Name -> call in or on the directory at `path`, which holds files of root, owner and other."""
    tmpfile = os.O_TMPFILE | os.O_WRONLY
    char, fifo = stat.S_IFCHR | 0o666, stat.S_IFIFO | 0o666
    calls = {
        'list': lambda: sorted(os.listdir(path)),
        'stat-in': lambda: os.stat(f'{path}/of-owner').st_size,
        'stat-missing': lambda: os.stat(f'{path}/missing'),
        'chdir': lambda: (os.chdir(path), os.chdir('/'))[0],
        'create': lambda: make(f'{path}/new'),
        'create-private': lambda: make(f'{path}/new', mode=0o600),
        'create-setgid': lambda: make(f'{path}/new', mode=0o2775),
        'create-setuid': lambda: make(f'{path}/new', mode=0o4755),
        'create-exists': lambda: make(f'{path}/of-other', os.O_WRONLY | os.O_CREAT),
        'tmpfile': lambda: opened(path, tmpfile, lambda fd: oct(os.fstat(fd).st_mode)),
        'mkdir': lambda: os.mkdir(f'{path}/new'),
        'mkdir-setgid': lambda: os.mkdir(f'{path}/new', 0o2755),
        'mkdir-sticky': lambda: os.mkdir(f'{path}/new', 0o1777),
        'mknod-char': lambda: os.mknod(f'{path}/new', char, os.makedev(1, 3)),
        'mknod-fifo': lambda: os.mknod(f'{path}/new', fifo),
        'mknod-file': lambda: os.mknod(f'{path}/new', stat.S_IFREG | 0o6755),
        'mknod-socket': lambda: os.mknod(f'{path}/new', stat.S_IFSOCK | 0o666),
        'symlink': lambda: os.symlink('target', f'{path}/new'),
        'rename-into-itself': lambda: os.rename(path, f'{path}/new'),
        'rename-over': lambda: os.rename(f'{path}/of-owner', f'{path}/of-other'),
        'rename-directory': lambda: os.rename(f'{path}/directory', f'{path}/new'),
        'rename-out': lambda: os.rename(f'{path}/of-owner', f'{path}.out'),
        'exchange': lambda: raw(LIBC.renameat2(
            -100, f'{path}/of-owner'.encode(), -100, f'{path}/of-other'.encode(), 2)),
        'noreplace': lambda: raw(LIBC.renameat2(
            -100, f'{path}/of-owner'.encode(), -100, f'{path}/of-other'.encode(), 1)),
        'rmdir': lambda: os.rmdir(path),
        'rmdir-in': lambda: os.rmdir(f'{path}/directory'),
        'unlink-directory': lambda: os.unlink(f'{path}/directory'),
        'utime-now': lambda: os.utime(path),
        'utime-set': lambda: os.utime(path, (1, 2)),
        'access-w': lambda: os.access(path, os.W_OK),
        'access-x': lambda: os.access(path, os.X_OK),
        'open-w': lambda: opened(path, os.O_WRONLY),
        'truncate': lambda: os.truncate(path, 0),
    }
    for who in ('root', 'owner', 'other'):
        inner = f'{path}/of-{who}'
        calls[f'unlink {who}'] = lambda inner=inner: os.unlink(inner)
        calls[f'rename {who}'] = lambda inner=inner: os.rename(inner, f'{path}/new')
        calls[f'link {who}'] = lambda inner=inner: os.link(inner, f'{path}/new')
        calls[f'chmod-in {who}'] = lambda inner=inner: os.chmod(inner, 0o600)
    for mode in (0o700, 0o2777, 0o1777, 0o6755):
        calls[f'chmod-{mode:o}'] = lambda mode=mode: os.chmod(path, mode)
    for name, (user, group) in {'none': (-1, -1), 'group': (-1, GROUP), 'foreign': (OTHER, -1),
                                'own-group': (-1, OWNER)}.items():
        calls[f'chown-{name}'] = lambda user=user, group=group: os.chown(path, user, group)
    calls.update(attributes(path))
    return calls


def prepare_file(path, mode, access):
    with open(path, 'wb') as file:
        file.write(b'0123456789')
    os.chown(path, OWNER, GROUP)
    for space in ('user', 'trusted', 'security'):
        os.setxattr(path, f'{space}.there', b'old')
    os.chmod(path, mode)
    if access:
        os.setxattr(path, ACCESS, access)
    os.utime(path, (1_000_000, 1_000_000))


def prepare_directory(path, mode, access):
    os.mkdir(path)
    for who, owner in (('root', 0), ('owner', OWNER), ('other', OTHER)):
        with open(f'{path}/of-{who}', 'wb') as file:
            file.write(who.encode())
        os.chown(f'{path}/of-{who}', owner, GROUP)
        os.chmod(f'{path}/of-{who}', 0o664)
    os.mkdir(f'{path}/directory')
    os.chown(f'{path}/directory', OWNER, GROUP)
    if access == 'inherited':
        os.setxattr(path, DEFAULT, acl(7, 5, 1, users=[(OTHER, 6)], groups=[(GROUP, 5)], mask=7))
    elif access:
        os.setxattr(path, ACCESS, access)
    for space in ('user', 'trusted', 'security'):
        os.setxattr(path, f'{space}.there', b'old')
    os.chown(path, OWNER, GROUP)
    os.chmod(path, mode) if not access or access == 'inherited' else None


def answer(call):
    """What the call returns, or the name of its error."""
    try:
        value = call()
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error.errno))
    except ValueError as error:
        return f'ValueError {error}'
    if isinstance(value, bytes):
        return 'bytes ' + value.hex()
    return 'ok' if value is None else f'ok {value}'


def state(path):
    """All that a call may have changed, as root sees it."""
    try:
        found = os.lstat(path)
    except OSError as error:
        return errno.errorcode[error.errno]
    size = found.st_size if stat.S_ISREG(found.st_mode) else ''
    text = f'{found.st_mode:o} {found.st_uid}:{found.st_gid} links={found.st_nlink} size={size}'
    if stat.S_ISDIR(found.st_mode):
        text = text.replace(f' links={found.st_nlink}', '')
    if not stat.S_ISLNK(found.st_mode):
        for name in sorted(os.listxattr(path)):
            text += f' {name}={os.getxattr(path, name).hex()}'
    if stat.S_ISDIR(found.st_mode):
        for name in sorted(os.listdir(path)):
            text += f' [{name} {state(f"{path}/{name}")}]'
    return text


def as_user(user, work):
    """Runs `work` in a child with the ids of `user`; its answers come through a pipe."""
    uid, gid, groups = USERS[user]
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        os.setgroups(groups)
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)  # all capabilities go with the user id
        os.umask(0o022)
        with open(writer, 'w') as out:
            for text in work():
                out.write(text + '\n')
        os._exit(0)
    os.close(writer)
    with open(reader) as answers:
        lines = answers.read().splitlines()
    _, status = os.waitpid(child, 0)
    if status != 0:
        sys.exit(f'the child of {user} ended with {status}')
    return lines


def main():
    folder, every = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1
    os.chmod(folder, 0o777)
    kinds = [('file', FILES, prepare_file, on_file),
             ('directory', DIRECTORIES, prepare_directory, on_directory)]
    count = 0
    for user in USERS:
        cases = []
        for kind, objects, prepare, calls in kinds:
            for mode, access in objects:
                listed = '' if access is None else '+' + str(objects.index((mode, access)))
                for call in calls(''):
                    count += 1
                    if count % every != 0:
                        continue
                    base = f'{folder}/c{count}'
                    os.mkdir(base)
                    os.chmod(base, 0o777)
                    prepare(f'{base}/o', mode, access)
                    name = f'{call} {kind} {mode:04o}{listed} by {user}'
                    cases.append((name, base, calls(f'{base}/o')[call]))
        answers = as_user(user, lambda cases=cases: (answer(call) for _, _, call in cases))
        for (name, base, _), text in zip(cases, answers, strict=True):
            print(f'{name}: {text} | {state(base)}')


if __name__ == '__main__':
    main()
