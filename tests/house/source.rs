//! One source file, and the paths that its tokens name.
//!
//! Tokens, not a parsed tree: what stands in a macro's arguments is named as much as anything else.

use std::collections::BTreeSet;

use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};

/// A file of the crate.
#[derive(Debug)]
pub(crate) struct Source {
    /// Relative to the crate, such as `src/view/feed.rs`.
    pub(crate) path: String,
    /// Such as `["view", "feed"]`; empty for the crate's root.
    pub(crate) module: Vec<String>,
    pub(crate) text: String,
}

/// The paths that a file names, with the line of each, in order.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// Ours, from the crate's root on: `view::feed::Feed`.
    pub(crate) ours: Vec<(usize, String)>,
    /// All others, and every word that stands alone.
    pub(crate) words: Vec<(usize, String)>,
    tests: Vec<Vec<String>>,
}

impl Source {
    pub(crate) fn new(path: &str, text: String) -> Self {
        let inner = path.trim_start_matches("src/").trim_end_matches(".rs").trim_end_matches("/mod");
        let module = match inner {
            "lib" => Vec::new(),
            _ => inner.split('/').map(str::to_owned).collect(),
        };
        Self { path: path.to_owned(), module, text }
    }

    pub(crate) fn names(&self) -> Names {
        let tokens: TokenStream =
            self.text.parse().unwrap_or_else(|error| panic!("{} is not Rust: {error}", self.path));
        let mut names = Names::default();
        names.read(tokens, &self.module);
        names.follow_imports();
        names
    }

    /// Modules of this file that are compiled for tests only and have a file of their own.
    pub(crate) fn test_modules(&self) -> Vec<Vec<String>> {
        self.names().tests
    }
}

impl Names {
    fn read(&mut self, tokens: TokenStream, module: &[String]) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            if is_test_attribute(&tokens[at..]) {
                at = self.skip_item(&tokens, at + 2, module);
                continue;
            }
            match &tokens[at] {
                TokenTree::Group(group) => {
                    self.read(group.stream(), module);
                    at += 1;
                }
                TokenTree::Ident(word) if *word == "mod" => {
                    let [TokenTree::Ident(name), TokenTree::Group(body), ..] = &tokens[at + 1..] else {
                        at += 1;
                        continue;
                    };
                    self.read(body.stream(), &within(module, name));
                    at += 3;
                }
                // A lifetime is no name.
                TokenTree::Punct(punct) if punct.as_char() == '\'' => at += 2,
                TokenTree::Ident(_) => at = self.read_path(&tokens, at, module, Vec::new()),
                _ => at += 1,
            }
        }
    }

    /// Reads the path that begins at `at` behind `prefix`, with all branches of a `use` tree; returns where
    /// it ends.
    fn read_path(
        &mut self,
        tokens: &[TokenTree],
        mut at: usize,
        module: &[String],
        prefix: Vec<Ident>,
    ) -> usize {
        let mut path = prefix;
        while let Some(TokenTree::Ident(word)) = tokens.get(at) {
            path.push(word.clone());
            at += 1;
            if !is_separator(&tokens[at..]) {
                break;
            }
            at += 2;
            if let Some(TokenTree::Group(tree)) = tokens.get(at)
                && tree.delimiter() == Delimiter::Brace
            {
                let tree: Vec<TokenTree> = tree.stream().into_iter().collect();
                let mut branch = 0;
                while branch < tree.len() {
                    match &tree[branch] {
                        TokenTree::Ident(_) => branch = self.read_path(&tree, branch, module, path.clone()),
                        // What follows a path up to the comma (`as name`, `::*`) names nothing new.
                        TokenTree::Punct(punct) if punct.as_char() == '*' => {
                            self.add(&path, module);
                            branch += 1;
                        }
                        _ => branch += 1,
                    }
                }
                return at + 1;
            }
        }
        // An exported macro lies at the crate's root, whatever module defines it.
        let is_macro = matches!(tokens.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == '!');
        if !(is_macro && path.len() == 2 && path[0] == "crate") {
            self.add(&path, module);
        }
        at
    }

    /// Sorts a path in, after it is resolved to the crate's root where it is ours.
    fn add(&mut self, path: &[Ident], module: &[String]) {
        let Some(first) = path.first() else { return };
        let line = first.span().start().line;
        let words: Vec<String> =
            path.iter().map(|word| word.to_string().trim_start_matches("r#").to_owned()).collect();
        let up = words.iter().take_while(|word| *word == "super").count();
        let base: Vec<String> = match words[0].as_str() {
            "crate" | "cardfence" => Vec::new(),
            "self" => module.to_vec(),
            "super" => module[..module.len().saturating_sub(up)].to_vec(),
            _ => {
                self.words.push((line, words.join("::")));
                return;
            }
        };
        let rest = words[up.max(1)..].iter().filter(|word| *word != "self").cloned();
        let ours: Vec<String> = base.into_iter().chain(rest).collect();
        if !ours.is_empty() {
            self.ours.push((line, ours.join("::")));
        }
    }

    /// `use crate::ledger;` makes `ledger::sqlite` a path of ours, too.
    fn follow_imports(&mut self) {
        let imported: BTreeSet<String> = self.ours.iter().map(|(_, path)| path.clone()).collect();
        let follows = |path: &str| path.split_once("::").is_some_and(|(first, _)| imported.contains(first));
        let followed: Vec<_> = self.words.iter().filter(|(_, path)| follows(path)).cloned().collect();
        self.ours.extend(followed);
    }

    /// Skips the item behind a test attribute; returns where it ends.
    fn skip_item(&mut self, tokens: &[TokenTree], mut at: usize, module: &[String]) -> usize {
        while let Some(token) = tokens.get(at) {
            match token {
                TokenTree::Ident(word) if *word == "mod" => {
                    if let [TokenTree::Ident(name), TokenTree::Punct(_), ..] = &tokens[at + 1..] {
                        self.tests.push(within(module, name));
                    }
                }
                // The body of an item is its end; the braces of a `use` tree are not.
                TokenTree::Group(group)
                    if group.delimiter() == Delimiter::Brace
                        && !at.checked_sub(2).is_some_and(|before| is_separator(&tokens[before..])) =>
                {
                    return at + 1;
                }
                TokenTree::Punct(punct) if punct.as_char() == ';' => return at + 1,
                _ => {}
            }
            at += 1;
        }
        at
    }
}

fn within(module: &[String], name: &Ident) -> Vec<String> {
    let mut inner = module.to_vec();
    inner.push(name.to_string());
    inner
}

fn is_separator(tokens: &[TokenTree]) -> bool {
    matches!(tokens, [TokenTree::Punct(a), TokenTree::Punct(b), ..] if a.as_char() == ':' && b.as_char() == ':')
}

/// `#[cfg(test)]`, alone or as one of several conditions that must all hold.
fn is_test_attribute(tokens: &[TokenTree]) -> bool {
    let [TokenTree::Punct(hash), TokenTree::Group(attribute), ..] = tokens else { return false };
    let text: String = attribute.stream().to_string().split_whitespace().collect();
    hash.as_char() == '#' && (text == "cfg(test)" || text.starts_with("cfg(all(test,"))
}
