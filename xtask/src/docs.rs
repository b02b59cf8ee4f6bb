//! Checks of documents: references have to exist, and paths must not be specific to one machine.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result};

use crate::{process, workspace};

/// Machine-specific path prefixes, which are forbidden in documents and scripts.
const OF_ONE_MACHINE: &[&str] = &["/home/", "/Users/", "/root/", "/work/", "C:\\Users"];
/// Documents that the repository must have.
const NEEDED: &[&str] =
    &["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE", "SECURITY.md"];

/// Checks every tracked document and script. Returns problems, one sentence each.
///
/// `pilotfish` is the built executable, which has the commands that documents may name.
///
/// # Errors
/// When the files cannot be listed or read.
pub(crate) fn check(pilotfish: &Path) -> Result<Vec<String>> {
    let root = workspace::root();
    let mut wrong: Vec<String> = NEEDED
        .iter()
        .filter(|name| !root.join(name).exists())
        .map(|name| format!("{name} is missing"))
        .collect();
    let mut commands = BTreeSet::new();
    for name in files()? {
        let path = root.join(&name);
        // A deleted file is listed until the deletion is committed.
        if !path.exists() {
            continue;
        }
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {name}"))?;
        wrong.extend(of_one_machine(&name, &text));
        if name.ends_with(".md") {
            wrong.extend(dead_links(&name, &text, &root));
            commands.extend(named_commands(&text).into_iter().map(|command| (command, name.clone())));
        }
    }
    wrong.extend(missing_tests(&root)?);
    for ((program, task), name) in commands {
        if !exists(&program, &task, pilotfish) {
            wrong.push(format!("{name} names `{program} {task}`, which does not exist"));
        }
    }
    Ok(wrong)
}

/// Document that names a test for each promise.
const PROMISES: &str = "docs/security.md";

/// Tests that it names and that do not exist.
fn missing_tests(root: &Path) -> Result<Vec<String>> {
    let text =
        std::fs::read_to_string(root.join(PROMISES)).with_context(|| format!("cannot read {PROMISES}"))?;
    let named: BTreeSet<&str> = code(&text).into_iter().filter(|word| is_test_name(word)).collect();
    let mut list = process::command("git");
    let mut missing = Vec::new();
    let sources = process::output(list.args(["grep", "-hoE", "fn [a-z0-9_]+\\(", "--", "crates", "dev"]))?;
    let functions: BTreeSet<&str> =
        sources.lines().filter_map(|line| line.strip_prefix("fn ")?.strip_suffix('(')).collect();
    for name in named {
        if !functions.contains(name) {
            missing.push(format!("{PROMISES} names the test {name}, which does not exist"));
        }
    }
    Ok(missing)
}

/// True if a word looks like the name of a test: several lower-case words with underscores.
fn is_test_name(word: &str) -> bool {
    word.matches('_').count() >= 2
        && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

/// Tracked documents and scripts; without Git (a source archive) the required documents.
fn files() -> Result<Vec<String>> {
    let mut list = process::command("git");
    list.args(["ls-files", "--cached", "--others", "--exclude-standard"]);
    let Ok(listed) = process::output(&mut list) else {
        return Ok(NEEDED.iter().map(|name| (*name).to_owned()).collect());
    };
    let wanted = |name: &&str| name.ends_with(".md") || name.ends_with(".py") || name.starts_with(".ci/");
    Ok(listed.lines().filter(wanted).map(str::to_owned).collect())
}

fn of_one_machine(name: &str, text: &str) -> Vec<String> {
    let lines = text.lines().enumerate();
    lines
        .filter_map(|(number, line)| {
            let found = OF_ONE_MACHINE.iter().find(|path| line.contains(*path))?;
            Some(format!("{name}:{}: a path of one machine: {found}", number + 1))
        })
        .collect()
}

/// Relative links to missing files, except for those in code blocks.
fn dead_links(name: &str, text: &str, root: &Path) -> Vec<String> {
    let folder = root.join(name).parent().map_or_else(|| root.to_path_buf(), Path::to_path_buf);
    let mut dead = Vec::new();
    let prose = text.split("\n```").step_by(2);
    for part in prose.flat_map(|text| text.split("](").skip(1)) {
        let Some((target, _)) = part.split_once(')') else { continue };
        let file = target.split(['#', ' ']).next().unwrap_or_default();
        let outside = file.contains("://") || file.starts_with("mailto:");
        if !file.is_empty() && !outside && !folder.join(file).exists() {
            dead.push(format!("{name}: a link to {file}, which does not exist"));
        }
    }
    dead
}

/// Commands in the code of a document: (`cargo xtask`, task) and (`pilotfish`, command).
fn named_commands(text: &str) -> BTreeSet<(String, String)> {
    let mut found = BTreeSet::new();
    for code in code(text) {
        for (program, starts) in
            [("cargo xtask", &["cargo xtask "][..]), ("pilotfish", &["pilotfish ", "pilotfish -- "])]
        {
            let start = starts.iter().rev().find_map(|start| Some((*start, find_word(code, start)?)));
            let Some((start, at)) = start else { continue };
            let rest = code.get(at + start.len()..).unwrap_or_default();
            let word: String = rest.chars().take_while(|c| c.is_ascii_lowercase() || *c == '-').collect();
            // `helm install pilotfish deploy/...` names a release and a path.
            let is_path = rest.get(word.len()..).is_some_and(|rest| rest.starts_with('/'));
            if !word.is_empty() && !word.starts_with('-') && !is_path {
                found.insert((program.to_owned(), word));
            }
        }
    }
    found
}

/// Position of `needle` as a command: at the start, or after a character that can precede a command.
fn find_word(code: &str, needle: &str) -> Option<usize> {
    let before = |at: usize| code.get(..at).and_then(|text| text.chars().next_back());
    code.match_indices(needle).map(|(at, _)| at).find(|at| before(*at).is_none_or(|c| " /;&|(".contains(c)))
}

/// Code of a document: lines of code blocks without their comments, and spans between backticks.
fn code(text: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut fenced = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if fenced || line.starts_with("    ") {
            let line = line.trim();
            let command = if line.starts_with('#') { "" } else { line.split(" # ").next().unwrap_or(line) };
            // Excludes the output of a program beside the command.
            if command.starts_with("cargo ") || command.contains("pilotfish ") && !command.contains(": ") {
                pieces.push(command);
            }
        } else {
            pieces.extend(line.split('`').skip(1).step_by(2));
        }
    }
    pieces
}

fn exists(program: &str, task: &str, pilotfish: &Path) -> bool {
    if program == "pilotfish" {
        return process::output(process::command(pilotfish).args([task, "--help"])).is_ok();
    }
    crate::tasks().iter().any(|known| known == task)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands(text: &str) -> Vec<String> {
        named_commands(text).into_iter().map(|(program, task)| format!("{program} {task}")).collect()
    }

    #[test]
    fn commands_are_found_in_code_only() {
        let text = "Run `cargo xtask test` or:\n\n```sh\ncargo run -p pilotfish -- serve x  # pilotfish nonsense\n\
                    target/debug/pilotfish validate x\nhelm install pilotfish deploy/helm\n```\nThe pilotfish swims with `pilotfish`.\n";
        assert_eq!(commands(text), ["cargo xtask test", "pilotfish serve", "pilotfish validate"]);
    }

    #[test]
    fn options_and_crate_names_are_no_commands() {
        assert!(commands("`pilotfish --help`, `pilotfish-model is`, `crates/xds/server x`").is_empty());
    }

    #[test]
    fn machine_paths_are_found_with_their_line() {
        assert_eq!(of_one_machine("A.md", "one\ncd /home/me\n"), ["A.md:2: a path of one machine: /home/"]);
    }

    #[test]
    fn links_to_missing_files_are_found() {
        let root = workspace::root();
        let text =
            "[a](Cargo.toml) [b](no/such.md#part) [c](https://example.org/x) [d](#part)\n```\na[b](c)\n```\n";
        assert_eq!(
            dead_links("README.md", text, &root),
            ["README.md: a link to no/such.md, which does not exist"]
        );
    }
}
