//! Which file a program is, and whether the loader loads libraries into it.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Interpreters of interpreters that are followed, as Linux does.
const DEPTH: usize = 5;
/// Bytes of a first line with an interpreter, as Linux reads them.
const LINE_BYTES: usize = 256;
/// `e_phoff`, `e_phentsize` and `e_phnum` of a 64-bit ELF file.
const ELF_TABLE: (u64, usize, usize) = (32, 54, 56);
/// `PT_INTERP`: the program names a loader.
const ELF_LOADER: u32 = 3;

/// Whether a library can be loaded into a program.
#[derive(Debug, PartialEq, Eq)]
pub enum Program {
    /// The loader does.
    Loads,
    /// It does not, for this reason.
    LoadsNothing(&'static str),
}

/// The file of a program, as execvp(3) finds it.
#[must_use]
pub fn find(named: &OsStr) -> Option<PathBuf> {
    if named.as_bytes().contains(&b'/') {
        return Some(named.into()).filter(|path: &PathBuf| path.is_file());
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let mut places = std::env::split_paths(&path).map(|folder| folder.join(named));
    places.find(|place| is_executable(place))
}

fn is_executable(path: &Path) -> bool {
    let found = path.metadata();
    found.is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// What the loader makes of it. What cannot be looked at is left to the system to refuse.
#[must_use]
pub fn kind(program: &Path) -> Program {
    let mut program = program.to_owned();
    for _ in 0..DEPTH {
        // A pipe would be waited for.
        if !program.is_file() {
            break;
        }
        if gains_rights(&program) {
            return Program::LoadsNothing("has set-id bits or capabilities");
        }
        let Ok(mut file) = File::open(&program) else {
            break;
        };
        let mut head = [0; LINE_BYTES];
        let len = file.read(&mut head).unwrap_or(0);
        match &head[..len] {
            [b'#', b'!', line @ ..] => program = interpreter(line),
            [0x7f, b'E', b'L', b'F', ..] => {
                return match names_loader(&file) {
                    Some(true) => Program::Loads,
                    Some(false) => Program::LoadsNothing("linked statically"),
                    None => Program::LoadsNothing("no program of 64 bits"),
                };
            }
            _ => break,
        }
    }
    Program::Loads
}

/// The program that a first line names.
fn interpreter(line: &[u8]) -> PathBuf {
    let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = line.trim_ascii();
    let end = line
        .iter()
        .position(u8::is_ascii_whitespace)
        .unwrap_or(line.len());
    OsStr::from_bytes(&line[..end]).into()
}

/// Whether the loader leaves libraries of the environment out, as the program may do more than the caller.
fn gains_rights(program: &Path) -> bool {
    let set_id = program
        .metadata()
        .is_ok_and(|found| found.permissions().mode() & 0o6000 != 0);
    let mut value = [0_u8; 64];
    set_id || rustix::fs::getxattr(program, "security.capability", &mut value).is_ok()
}

/// Whether an ELF file names a loader, if it is a 64-bit one.
fn names_loader(file: &File) -> Option<bool> {
    let mut header = [0; 64];
    file.read_exact_at(&mut header, 0).ok()?;
    // Of 64 bits, with the lowest byte first: what this program is.
    if header[4..6] != [2, 1] {
        return None;
    }
    let (offset, size, count) = ELF_TABLE;
    let offset = usize::try_from(offset).ok()?;
    let offset = u64::from_le_bytes(header[offset..offset + 8].try_into().ok()?);
    let short = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
    let (size, count) = (u64::from(short(size)), u64::from(short(count)));
    let mut found = false;
    for index in 0..count {
        let mut kind = [0; 4];
        let at = offset.checked_add(index * size)?;
        file.read_exact_at(&mut kind, at).ok()?;
        found |= u32::from_le_bytes(kind) == ELF_LOADER;
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(bytes: &[u8], mode: u32) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        std::fs::write(&path, bytes).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        (folder, path)
    }

    /// An ELF file with program headers of these kinds.
    fn elf(kinds: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1]);
        (bytes[32], bytes[54]) = (64, 56);
        bytes[56] = u8::try_from(kinds.len()).unwrap();
        for kind in kinds {
            bytes.push(*kind);
            bytes.extend([0; 55]);
        }
        bytes
    }

    #[test]
    fn the_loader_is_named_or_not() {
        let (_folder, path) = made(&elf(&[6, 3, 1]), 0o755);
        assert_eq!(kind(&path), Program::Loads);
        let (_folder, path) = made(&elf(&[6, 1]), 0o755);
        assert_eq!(kind(&path), Program::LoadsNothing("linked statically"));
        let (_folder, path) = made(&elf(&[3]), 0o4755);
        assert!(matches!(kind(&path), Program::LoadsNothing(_)));
        let (_folder, path) = made(&elf(&[3])[..40], 0o755);
        assert_eq!(kind(&path), Program::LoadsNothing("no program of 64 bits"));
        assert_eq!(kind(Path::new("/none")), Program::Loads);
    }

    #[test]
    fn interpreters_are_followed() {
        let (_folder, interpreter) = made(&elf(&[1]), 0o755);
        let line = format!("#! {} -x\necho", interpreter.display());
        let (_folder, script) = made(line.as_bytes(), 0o755);
        assert_eq!(kind(&script), Program::LoadsNothing("linked statically"));
        let (_folder, path) = made(b"", 0o755);
        std::fs::write(&path, format!("#!{}\n", path.display())).unwrap();
        assert_eq!(kind(&path), Program::Loads);
    }

    #[test]
    fn programs_are_found_on_the_path() {
        assert!(find(OsStr::new("sh")).is_some_and(|sh| sh.is_absolute()));
        assert_eq!(find(OsStr::new("no-such-program-of-dure")), None);
        assert_eq!(find(OsStr::new("/none")), None);
    }
}
