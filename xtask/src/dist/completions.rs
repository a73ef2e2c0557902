//! Completions of shells, which also know the words of `dure mount -o`.
//!
//! **Structure.** clap makes them from the arguments; what it cannot know, a list with commas, is
//! added for each shell. **Invariants.** Where clap's text is not as expected, that is an error.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use clap_complete::Shell;
use dure_cli::manual::MOUNT_WORDS;

/// The shells, and where each looks below a prefix.
pub(super) const PLACES: [(Shell, &str); 3] = [
    (Shell::Bash, "share/bash-completion/completions/dure"),
    (Shell::Zsh, "share/zsh/site-functions/_dure"),
    (Shell::Fish, "share/fish/vendor_completions.d/dure.fish"),
];

/// Writes them below `dist`.
pub(super) fn write(dist: &Path) -> Result<()> {
    for (shell, place) in PLACES {
        let mut text = Vec::new();
        let mut command = dure_cli::manual::command();
        clap_complete::generate(shell, &mut command, "dure", &mut text);
        let text = String::from_utf8(text).context("completions are text")?;
        let text = match shell {
            Shell::Bash => bash(text),
            Shell::Zsh => zsh(&text)?,
            _ => fish(text),
        };
        let path = dist.join(place);
        fs::create_dir_all(path.parent().context("it has a folder")?)?;
        fs::write(&path, text)?;
    }
    Ok(())
}

/// `-o` of `dure mount` is answered before clap's function is asked.
fn bash(mut text: String) -> String {
    let words = MOUNT_WORDS.join(" ");
    text.push_str(&format!(
        r#"
# The words of dure mount -o, after the last comma.
_dure_mount_options() {{
    local before last word
    case ${{COMP_WORDS[1]-}} in mount) ;; *) _dure "$@"; return ;; esac
    case $3 in -o|--options) ;; *) _dure "$@"; return ;; esac
    last=${{2##*,}}
    before=${{2%"$last"}}
    COMPREPLY=()
    for word in $(compgen -W "{words}" -- "$last"); do
        COMPREPLY+=("$before$word")
    done
    compopt -o nospace 2>/dev/null || true
}}
complete -F _dure_mount_options -o bashdefault -o default dure
"#
    ));
    text
}

/// The value of `-o` is a list that `_values` completes.
fn zsh(text: &str) -> Result<String> {
    let function = "_dure_mount_options() {\n    _values -s , option";
    let mut function = function.to_owned();
    for word in MOUNT_WORDS {
        // `word:message:` takes a value.
        let word = match word.strip_suffix('=') {
            Some(key) => format!(" '{key}:value:'"),
            None => format!(" '{word}'"),
        };
        function.push_str(&word);
    }
    function.push_str("\n}\n\n");
    let mut changed = 0;
    let lines = text.lines().map(|line| {
        let is_option = line.contains("'*-o+[") || line.contains("'*--options=[");
        if is_option && line.contains(":OPT:_default") {
            changed += 1;
            return line.replace(":OPT:_default", ":OPT:_dure_mount_options");
        }
        line.to_owned()
    });
    let text = lines.collect::<Vec<_>>().join("\n") + "\n";
    ensure!(
        changed == 2,
        "-o of dure mount stands {changed} times in zsh's completions"
    );
    let (head, rest) = text.split_once("_dure() {").context("zsh's function")?;
    Ok(format!("{head}{function}_dure() {{{rest}"))
}

fn fish(mut text: String) -> String {
    let words = MOUNT_WORDS.join("\\n");
    text.push_str(&format!(
        "function __dure_mount_options\n    printf '{words}\\n'\nend\n\
         complete -c dure -n \"__fish_seen_subcommand_from mount\" -s o -l options -x \
         -a '(__fish_complete_list , __dure_mount_options)'\n"
    ));
    text
}
