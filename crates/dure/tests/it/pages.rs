//! The programs of the README and of docs/user/library.md do what they say.
//!
//! Each stands here once more, between two lines `// page`, and must be equal to the one on its page
//! but for comments, indentation and the name of the image.

#![expect(clippy::print_stdout, reason = "a program on a page prints")]

use std::error::Error;
use std::fs;
use std::path::Path;

use dure::CreateOptions;

#[test]
fn the_program_of_the_readme() -> Result<(), Box<dyn Error>> {
    // page
    let volume = dure::Volume::in_memory(64 << 20)?;
    let session = volume.root();
    session.create_dir("/notes")?;
    let file = session.create("/notes/today")?;
    file.write_all_at(b"sown together", 0)?;
    file.sync_all()?;
    assert_eq!(session.read("/notes/today")?, b"sown together");
    volume.close()?;
    // page
    assert_eq!(on_page("README.md", (0, 1))?, in_this_file(0));
    Ok(())
}

#[test]
fn the_program_of_the_library_page() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let image = folder.path().join("v.img");
    let options = CreateOptions {
        image_bytes: Some(64 << 20),
        ..CreateOptions::default()
    };
    dure::Volume::create(&image, &options)?.close()?;
    // page
    let volume = dure::Volume::open(&image, dure::MountOptions::default())?;
    let session = volume.root();
    session.create_dir_all("notes/2026")?;
    session.write("notes/2026/today", b"sown together")?;
    for entry in session.read_dir("notes/2026")? {
        let entry = entry?;
        println!("{} {}", entry.path().display(), entry.metadata()?.len());
    }
    // page
    let page = on_page("docs/user/library.md", (0, 2))?;
    let page = page.replace("\"v.img\"", "&image");
    assert_eq!(page, in_this_file(1));
    Ok(())
}

#[test]
fn the_mount_of_the_library_page() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let directory = folder.path();
    let volume = dure::Volume::in_memory(64 << 20)?;
    let session = volume.root();
    // Where there is no FUSE it says so.
    let Some(mut probe) = crate::mount::mounted(volume.mount(directory)) else {
        return Ok(());
    };
    probe.unmount()?;
    // page
    let mut mount = volume.mount(directory)?;
    session.write("note", b"sown")?;
    assert_eq!(std::fs::read(directory.join("note"))?, b"sown");
    let there = mount.open(&session.open("note")?)?;
    there.lock()?;
    drop(there);
    mount.unmount()?;
    // page
    let page = on_page("docs/user/library.md", (1, 2))?;
    let page = page.replace("\"/mnt/note\"", "directory.join(\"note\")");
    let page = page.replace("\"/mnt\"", "directory");
    assert_eq!(page, in_this_file(2));
    Ok(())
}

/// The lines without comments and indentation.
fn bare(program: &str) -> String {
    let lines = program
        .lines()
        .map(|line| line.split("//").next().unwrap_or(""));
    let lines: Vec<&str> = lines
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    lines.join("\n")
}

/// A program on a page, by its number, of so many.
fn on_page(page: &str, (number, count): (usize, usize)) -> Result<String, Box<dyn Error>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(page);
    let text = fs::read_to_string(path)?;
    let programs: Vec<&str> = text.split("```rust\n").skip(1).collect();
    assert_eq!(programs.len(), count, "{page}: each program needs a test");
    let program = programs[number].split("```").next().unwrap_or("");
    Ok(bare(program))
}

/// What stands between the lines `// page` of the test of this number.
fn in_this_file(number: usize) -> String {
    let parts: Vec<&str> = include_str!("pages.rs").split("    // page\n").collect();
    bare(parts[2 * number + 1])
}
