//! The known differences, listed in documents with their reasons.
//!
//! **Problem.** A list in the code and one in the document would drift apart. **Structure.** The
//! table rows of a document that begin with a case's name in backquotes. **Invariants.** A row
//! has a reason. **Crash.** Nothing is kept.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

use crate::cargo;

const DOCUMENT: &str = "docs/testing/conformance.md";
const HEADING: &str = "## Known differences";

/// Case -> reason.
pub(crate) fn differences() -> Result<BTreeMap<String, String>> {
    differences_in(DOCUMENT, HEADING)
}

/// The same from another document.
pub(crate) fn differences_in(document: &str, heading: &str) -> Result<BTreeMap<String, String>> {
    let text = std::fs::read_to_string(cargo::root().join(document));
    let text = text.with_context(|| document.to_owned())?;
    parse(&text, heading).with_context(|| format!("{document}, {heading}"))
}

fn parse(text: &str, heading: &str) -> Result<BTreeMap<String, String>> {
    let (_, section) = text.split_once(heading).context("no such heading")?;
    let section = section.split("\n## ").next().unwrap_or_default();
    let mut found = BTreeMap::new();
    for line in section.lines() {
        let Some(row) = line.strip_prefix("| `") else {
            continue;
        };
        let (case, rest) = row.split_once('`').context("a row without a case")?;
        let reason = rest.trim_matches(|c| c == '|' || c == ' ');
        anyhow::ensure!(!reason.is_empty(), "{case} has no reason");
        found.insert(case.to_owned(), reason.to_owned());
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_the_section_are_found() {
        let text = "| `not::here` | x |\n## Known differences\n| case | reason |\n|---|---|\n\
                    | `a::b` | fuser cannot |\n\n## Next\n| `nor::here` | y |\n";
        let found = parse(text, HEADING).unwrap();
        let found: Vec<_> = found
            .iter()
            .map(|(case, why)| (case.as_str(), why.as_str()))
            .collect();
        assert_eq!(found, [("a::b", "fuser cannot")]);
        assert!(parse("## Known differences\n| `a` | |\n", HEADING).is_err());
        assert!(parse("nothing", HEADING).is_err());
    }

    #[test]
    fn the_document_has_the_section() {
        differences().unwrap();
    }
}
