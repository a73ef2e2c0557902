//! `cargo xtask site`: the documents as a site, by mdBook.
//!
//! **Problem.** On a site only pages that its summary names exist, and links lead to files of the
//! repository, too. **Structure.** Pages are copied with the same paths, and whatever else they link to;
//! a folder that is linked to gets a page that lists it. The summary follows `docs/README.md`. Then each
//! link of the site is followed. **Invariants.** Every page of docs/ is in the summary, or that is an
//! error. The examples are those of the pages, which the tests of dure-cli run. **Crash.** Run it again.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::cargo;
use crate::dist::{copy, copy_all, remove};

/// Pages at the root of the repository; the first is the first of the site.
const FIRST: [&str; 5] = [
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    CONTENTS,
];
/// The table of contents.
const CONTENTS: &str = "docs/README.md";

const BOOK: &str = "\
[book]
title = \"dure\"

[output.html]
input-404 = \"\"

[output.html.print]
enable = false
";

/// Makes `target/site/book`.
pub(crate) fn run() -> Result<()> {
    let site = cargo::target().join("site");
    remove(&site)?;
    let source = site.join("src");
    let summary = gather(&cargo::root(), &source)?;
    // mdBook makes index.html of README.md, and leaves links to it as they are.
    for page in pages(&source, &source)? {
        let page = source.join(page);
        let text = fs::read_to_string(&page)?;
        let text = text.replace("README.md)", "index.md)");
        fs::write(page, text.replace("README.md#", "index.md#"))?;
    }
    fs::write(source.join("SUMMARY.md"), summary)?;
    fs::write(site.join("book.toml"), BOOK)?;
    let mut build = Command::new("mdbook");
    build.arg("build").arg(&site);
    cargo::run(build).context("is mdBook installed? `cargo install --locked mdbook`")?;
    let dead = dead_links(&site.join("book"))?;
    ensure!(dead.is_empty(), "dead links:\n{}", dead.join("\n"));
    println!("{}", site.join("book").display());
    Ok(())
}

/// Copies the pages of the repository at `root`, and what they link to; the summary.
fn gather(root: &Path, source: &Path) -> Result<String> {
    copy_all(&root.join("docs"), &source.join("docs"))?;
    for page in FIRST {
        copy(&root.join(page), &source.join(page))?;
    }
    for page in pages(source, source)? {
        for target in links(source, &page)? {
            let (from, to) = (root.join(&target), source.join(&target));
            if from.is_dir() {
                list(&from, &to, &target)?;
            } else if !to.exists() {
                copy(&from, &to)?;
            }
        }
    }
    summary(source)
}

/// A page for a folder that has none.
fn list(from: &Path, to: &Path, name: &Path) -> Result<()> {
    let page = to.join("README.md");
    if page.exists() {
        return Ok(());
    }
    copy_all(from, to)?;
    let mut names: Vec<String> = fs::read_dir(from)?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<_>>()?;
    names.sort();
    let lines = names.iter().map(|name| format!("* [{name}]({name})\n"));
    let text = format!("# {}\n\n{}", name.display(), lines.collect::<String>());
    Ok(fs::write(page, text)?)
}

/// The pages below a folder, in order, by their paths from `source`.
fn pages(source: &Path, folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(pages(source, &path)?);
        } else if path.extension().is_some_and(|is| is == "md") {
            found.push(path.strip_prefix(source)?.to_owned());
        }
    }
    found.sort();
    Ok(found)
}

/// What a page links to within the repository, by paths from its root.
fn links(source: &Path, page: &Path) -> Result<Vec<PathBuf>> {
    let text = fs::read_to_string(source.join(page))?;
    Ok(links_of(page, &text))
}

fn links_of(page: &Path, text: &str) -> Vec<PathBuf> {
    let links = text.split("](").skip(1);
    let links = links.filter_map(|rest| rest.split([')', '#']).next());
    let own = links.filter(|link| !link.contains("://") && !link.is_empty());
    let folder = page.parent().unwrap_or(Path::new(""));
    own.map(|link| flat(&folder.join(link))).collect()
}

/// A path without `..`.
fn flat(path: &Path) -> PathBuf {
    let mut flat = PathBuf::new();
    for part in path.components() {
        if part == Component::ParentDir {
            flat.pop();
        } else {
            flat.push(part);
        }
    }
    flat
}

/// The sections of the table of contents with their pages; below the page of a folder those of its pages
/// that the table does not name.
fn summary(source: &Path) -> Result<String> {
    let contents = fs::read_to_string(source.join(CONTENTS))?;
    let named = links_of(Path::new(CONTENTS), &contents);
    let mut left: BTreeSet<PathBuf> = pages(source, source)?.into_iter().collect();
    let mut text = String::from("# Summary\n\n");
    for page in FIRST.map(Path::new) {
        left.remove(page);
        text.push_str(&format!("{}\n", chapter(source, page)?));
    }
    for section in contents.split("\n## ").skip(1) {
        let heading = section.lines().next().unwrap_or_default();
        text.push_str(&format!("\n# {heading}\n\n"));
        for link in links_of(Path::new(CONTENTS), section) {
            let is_folder = source.join(&link).is_dir();
            let page = if is_folder {
                link.join("README.md")
            } else {
                link
            };
            if !left.remove(&page) {
                continue;
            }
            text.push_str(&format!("- {}\n", chapter(source, &page)?));
            if !page.ends_with("README.md") {
                continue;
            }
            let folder = page.parent().context("it is in a folder")?;
            for below in pages(source, &source.join(folder))? {
                if !named.contains(&below) && left.remove(&below) {
                    text.push_str(&format!("  - {}\n", chapter(source, &below)?));
                }
            }
        }
    }
    let of_docs = left
        .iter()
        .find(|page| page.starts_with("docs") && !is_list(page));
    ensure!(of_docs.is_none(), "{CONTENTS} leads to no {of_docs:?}");
    text.push_str("\n# Folders\n\n");
    for page in &left {
        text.push_str(&format!("- {}\n", chapter(source, page)?));
    }
    Ok(text)
}

/// Whether [`list`] made the page: the repository has none there.
fn is_list(page: &Path) -> bool {
    !cargo::root().join(page).exists()
}

/// The link to a page, by its heading.
fn chapter(source: &Path, page: &Path) -> Result<String> {
    let text = fs::read_to_string(source.join(page))?;
    let heading = text.lines().find_map(|line| line.strip_prefix("# "));
    let heading = heading.with_context(|| format!("{}: no heading", page.display()))?;
    Ok(format!("[{heading}]({})", page.display()))
}

/// Links of the site that lead nowhere, with their pages.
fn dead_links(book: &Path) -> Result<Vec<String>> {
    let mut dead = Vec::new();
    let mut folders = vec![book.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|is| is == "html") {
                let text = fs::read_to_string(&path)?;
                let links = text.split(" href=\"").skip(1);
                let links = links.filter_map(|rest| rest.split('"').next());
                let is_dead = |link: &&str| !link.contains("://") && !leads(&path, &text, link);
                let found = links.filter(is_dead);
                dead.extend(found.map(|link| format!("{}: {link}", path.display())));
            }
        }
    }
    dead.sort();
    dead.dedup();
    Ok(dead)
}

/// Whether a link of the page at `path`, which has this text, leads to a page and a place in it.
fn leads(path: &Path, text: &str, link: &str) -> bool {
    let (file, place) = link.split_once('#').unwrap_or((link, ""));
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut target = folder.join(file);
    if target.is_dir() {
        target.push("index.html");
    }
    if place.is_empty() {
        return file.is_empty() || target.exists();
    }
    let id = format!("id=\"{place}\"");
    if file.is_empty() {
        return text.contains(&id);
    }
    fs::read_to_string(target).is_ok_and(|text| text.contains(&id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_and_what_it_links_to_is_in_the_site() {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path();
        let summary = gather(&cargo::root(), source).unwrap();
        for page in pages(source, source).unwrap() {
            let link = format!("]({})\n", page.display());
            assert_eq!(summary.matches(&link).count(), 1, "{link}{summary}");
            for target in links(source, &page).unwrap() {
                assert!(source.join(&target).exists(), "{page:?}: {target:?}");
            }
        }
    }

    #[test]
    fn a_dead_link_of_the_site_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write(
            "a.html",
            "<a href=\"b.html#there\"> <a href=\"#no\"> <a href=\"https://x/y\">",
        );
        write(
            "b.html",
            "<h1 id=\"there\"> <a href=\"a.html\"> <a href=\"c.html\">",
        );
        let dead = dead_links(folder.path()).unwrap();
        assert_eq!(dead.len(), 2, "{dead:?}");
        assert!(dead[0].ends_with("a.html: #no") && dead[1].ends_with("b.html: c.html"));
    }
}
