//! What bench/cost.c does, through the library for Rust: what C calls are compared with.
//! `cost CALL IMAGE`; bench/run counts its instructions.

#![expect(clippy::print_stdout, reason = "it is what the program is for")]

use std::hint::black_box;
use std::time::Duration;

use dure::{CreateOptions, File, FormatOptions, MountOptions, OpenOptions, Session, Volume};
use dure_sync::clock;

const PAGE: usize = 4096;
const PAGES: u64 = 256;
const CALLS: u64 = 20_000;

/// Where it lies decides how it is copied.
#[repr(align(4096))]
struct Page([u8; PAGE]);

struct Scene {
    session: Session,
    file: File,
    page: Page,
}

impl Scene {
    fn call(&mut self, kind: u8, number: u64) -> dure::Result<()> {
        let offset = number % PAGES * 4096;
        match kind {
            b'r' => drop(self.file.read_at(&mut self.page.0, offset)?),
            b'o' => drop(self.file.write_at(&self.page.0, offset)?),
            b's' => drop(black_box(self.session.metadata("/dir/file")?)),
            _ => drop(black_box(self.file.metadata()?)),
        }
        Ok(())
    }
}

/// What callgrind counts.
#[unsafe(no_mangle)]
#[inline(never)]
fn counted_calls(scene: &mut Scene, kind: u8) -> dure::Result<()> {
    (0..CALLS).try_for_each(|number| scene.call(kind, number))
}

fn main() -> dure::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, call, image] = &arguments[..] else {
        panic!("cost CALL IMAGE");
    };
    let options = CreateOptions {
        image_bytes: Some(64 << 20),
        format: FormatOptions {
            journals: Some(1),
            ..FormatOptions::default()
        },
        mount: MountOptions {
            commit_interval: Duration::from_secs(3600),
            ..MountOptions::default()
        },
    };
    let volume = Volume::create(image, &options)?;
    let session = volume.root();
    session.create_dir("/dir")?;
    let made = OpenOptions::new().read(true).write(true).create(true);
    let file = made.open(&session, "/dir/file")?;
    let page = Page([0; PAGE]);
    let mut scene = Scene {
        session,
        file,
        page,
    };
    let kind = call.as_bytes()[0];
    (0..PAGES).try_for_each(|number| scene.call(b'o', number))?;
    (0..PAGES).try_for_each(|number| scene.call(kind, number))?;
    let begin = clock::monotonic_ns();
    counted_calls(&mut scene, kind)?;
    let spent = clock::monotonic_ns() - begin;
    println!("{}.{}", spent / CALLS, spent % CALLS * 10 / CALLS);
    drop(scene);
    volume.close()
}
