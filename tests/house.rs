//! The rules of the house that no compiler checks: who may know whom, how a file begins, how long it gets,
//! and that the README's table of metrics is the truth.
//!
//! A single crate has no walls between its modules, so the walls are here: `rules.rs` says them, `source.rs`
//! finds the paths that a file names. The rules are read from the tokens of each file, so comments and
//! strings do not count, and neither do test modules: a test may reach for anything.

#[path = "house/metrics.rs"]
mod metrics;
#[path = "house/rules.rs"]
mod rules;
#[path = "house/source.rs"]
mod source;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use source::Source;

/// Beyond this a file says why it is long; beyond the second nothing excuses it.
const LONG_LINES: usize = 500;
const TOO_LONG_LINES: usize = 800;

/// `main` parses, matches and exits; whatever makes it longer has its place elsewhere.
const MAIN_LINES: usize = 40;

#[test]
fn no_module_knows_what_it_must_not() {
    let mut wrong = String::new();
    for source in sources() {
        for breach in rules::breaches(&source) {
            writeln!(wrong, "{}:{}: {}", source.path, breach.line, breach.what).expect("text grows");
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}(the rules are in tests/house/rules.rs)");
}

#[test]
fn every_file_begins_with_what_it_owns() {
    let silent: Vec<String> =
        sources().filter(|source| !source.text.starts_with("//!")).map(|source| source.path).collect();
    assert!(silent.is_empty(), "files whose first line is no `//!`: {silent:#?}");
}

#[test]
fn no_file_is_long_without_saying_why() {
    let mut wrong = Vec::new();
    for source in sources() {
        let lines = source.text.lines().count();
        let mut top = source.text.lines().take_while(|line| line.starts_with("//!"));
        let excused = top.any(|line| line.split(|c: char| !c.is_alphabetic()).any(|word| word == "long"));
        let limit = match () {
            () if source.path == "src/main.rs" => MAIN_LINES,
            () if excused => TOO_LONG_LINES,
            () => LONG_LINES,
        };
        if lines > limit {
            wrong.push(format!("{}: {lines} lines, {limit} allowed", source.path));
        }
    }
    assert!(wrong.is_empty(), "split them, or say at the top why they are long: {wrong:#?}");
}

#[test]
fn readme_lists_exactly_the_metrics_that_exist() {
    let read = |path: &str| fs::read_to_string(root().join(path)).ok();
    // Either comes into being with its own change.
    let (Some(code), Some(readme)) = (read("src/telemetry/metrics.rs"), read("README.md")) else { return };
    let (defined, listed) = (metrics::defined(&code), metrics::listed(&readme));
    let unlisted: Vec<_> = defined.difference(&listed).collect();
    let unknown: Vec<_> = listed.difference(&defined).collect();
    assert!(unlisted.is_empty(), "metrics that README.md does not list: {unlisted:?}");
    assert!(unknown.is_empty(), "metrics in README.md that do not exist: {unknown:?}");
}

/// Every source file outside test modules, by path.
fn sources() -> impl Iterator<Item = Source> {
    let mut files = Vec::new();
    collect(&root().join("src"), &mut files);
    files.sort();
    let read = |path: &PathBuf| {
        let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let name = path.strip_prefix(root()).expect("it was found there");
        Source::new(name.to_str().expect("our paths are text"), text)
    };
    let sources: Vec<Source> = files.iter().map(read).collect();
    let tests: Vec<Vec<String>> = sources.iter().flat_map(|source| source.test_modules()).collect();
    sources.into_iter().filter(move |source| !tests.iter().any(|module| source.module.starts_with(module)))
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for entry in entries {
        let path = entry.expect("a folder can be listed").path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
