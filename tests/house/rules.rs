//! Who may know whom. The table is the architecture; `ARCHITECTURE.md` gives its reasons.
//!
//! The most specific rule that names a file's module is the one that holds for it. A module may always use
//! itself, unless its rule denies a part of it.

use crate::source::Source;

/// What one module may name.
#[derive(Debug)]
struct Rule {
    module: &'static str,
    /// Modules of ours, or parts of them.
    may_use: &'static [&'static str],
    /// Parts of what it may use that it never sees all the same.
    never: &'static [&'static str],
    /// Crates, types and words that do not occur: a name, or a path such as `std::fs`.
    no_word: &'static [&'static str],
}

/// One place in one file that breaks a rule.
#[derive(Debug)]
pub(crate) struct Breach {
    pub(crate) line: usize,
    pub(crate) what: String,
}

const STORES: &[&str] = &["ledger::memory", "ledger::sqlite", "ledger::postgres"];

/// Decisions that depend on nothing but their arguments: no runtime, no clock, no randomness, no world.
const PURE: &[&str] = &[
    "tokio",
    "sqlx",
    "tonic",
    "axum",
    "hyper",
    "reqwest",
    "async",
    "await",
    "Instant",
    "SystemTime",
    "getrandom",
    "rand",
    "std::fs",
    "std::net",
    "std::env",
    "std::process",
    "std::thread",
];

const RULES: &[Rule] = &[
    Rule { module: "terms", may_use: &[], never: &[], no_word: &["tokio", "sqlx", "tonic", "axum"] },
    Rule { module: "clock", may_use: &["terms"], never: &[], no_word: &["tokio", "sqlx", "tonic", "axum"] },
    Rule { module: "card", may_use: &["terms"], never: &[], no_word: PURE },
    Rule { module: "fence", may_use: &["terms", "card"], never: &[], no_word: PURE },
    Rule {
        // `ledger_conformance` is its own macro, which exporting puts at the root.
        module: "ledger",
        may_use: &["terms", "card", "telemetry", "ledger_conformance"],
        never: &[],
        no_word: &["tonic", "axum", "sqlx"],
    },
    // An embedded store is its own authority on time, where PostgreSQL is asked for its own.
    Rule {
        module: "ledger::memory",
        may_use: &["terms", "clock", "card", "telemetry"],
        never: &["ledger::sqlite", "ledger::postgres"],
        no_word: &["tonic", "axum", "sqlx"],
    },
    Rule {
        module: "ledger::sqlite",
        may_use: &["terms", "clock", "card", "telemetry"],
        never: &["ledger::postgres", "ledger::memory"],
        no_word: &["tonic", "axum", "PgPool", "PgConnection"],
    },
    Rule {
        module: "ledger::postgres",
        may_use: &["terms", "card", "telemetry"],
        never: &["ledger::sqlite", "ledger::memory"],
        no_word: &["tonic", "axum", "SqlitePool", "SqliteConnection"],
    },
    Rule {
        module: "view",
        may_use: &["terms", "clock", "card", "fence", "ledger", "telemetry"],
        never: STORES,
        no_word: &["sqlx", "tonic", "axum"],
    },
    Rule {
        module: "upstream",
        may_use: &["terms", "clock", "card", "ledger", "view", "proto", "telemetry"],
        never: STORES,
        no_word: &["sqlx", "axum"],
    },
    Rule {
        module: "registry",
        may_use: &["terms", "clock", "card", "fence", "ledger", "view", "telemetry"],
        never: STORES,
        no_word: &["sqlx", "tonic", "prost", "axum"],
    },
    Rule {
        module: "api",
        may_use: &["terms", "card", "fence", "registry", "wire", "proto", "telemetry"],
        never: &[],
        no_word: &["sqlx"],
    },
    Rule {
        module: "api::grpc",
        may_use: &["terms", "card", "fence", "registry", "wire", "proto", "telemetry"],
        never: &["api::http"],
        no_word: &["sqlx", "axum"],
    },
    Rule {
        module: "api::http",
        may_use: &["terms", "card", "fence", "registry", "wire", "telemetry"],
        never: &["api::grpc"],
        no_word: &["sqlx", "tonic", "prost"],
    },
    Rule {
        module: "wire",
        may_use: &["terms", "card", "fence", "registry"],
        never: &[],
        no_word: &["tokio", "sqlx", "tonic", "prost", "axum"],
    },
    Rule {
        module: "client",
        may_use: &["terms", "clock", "card", "fence", "proto"],
        never: &[],
        no_word: &["sqlx", "axum"],
    },
    Rule {
        module: "cli",
        may_use: &["terms", "clock", "card", "wire", "client", "config", "ledger::chain"],
        never: &[],
        no_word: &["sqlx", "axum"],
    },
    Rule {
        module: "cli::serve",
        may_use: &["terms", "card", "wire", "client", "config", "server", "telemetry"],
        never: &[],
        no_word: &["sqlx", "axum"],
    },
    Rule {
        module: "cli::demo",
        may_use: &["terms", "clock", "card", "wire", "client", "config", "server", "telemetry"],
        never: &[],
        no_word: &["sqlx", "axum"],
    },
    // It is a seam of the ledger with a fault in it, so it knows the seam and nothing else.
    Rule {
        module: "cli::demo::valve",
        may_use: &["terms", "ledger"],
        never: STORES,
        no_word: &["sqlx", "axum"],
    },
    Rule { module: "config", may_use: &["terms", "card"], never: &[], no_word: &["sqlx", "tonic", "axum"] },
    Rule { module: "telemetry", may_use: &["terms"], never: &[], no_word: &["sqlx", "axum"] },
    Rule {
        module: "proto",
        may_use: &["terms", "card", "fence"],
        never: &[],
        no_word: &["tokio", "sqlx", "axum"],
    },
    Rule {
        module: "server",
        may_use: &[
            "terms",
            "clock",
            "card",
            "fence",
            "ledger",
            "upstream",
            "view",
            "registry",
            "api",
            "wire",
            "client",
            "config",
            "telemetry",
            "proto",
        ],
        never: &[],
        no_word: &[],
    },
    Rule { module: "main", may_use: &["cli"], never: &[], no_word: &["sqlx", "tonic", "axum"] },
];

/// Everything in `source` that its module's rule denies.
pub(crate) fn breaches(source: &Source) -> Vec<Breach> {
    // The crate's root only lists the modules.
    let Some(top) = source.module.first() else { return Vec::new() };
    let module = source.module.join("::");
    let rules = RULES.iter().filter(|rule| is_part(&module, rule.module));
    let Some(rule) = rules.max_by_key(|rule| rule.module.len()) else {
        let what = format!("module `{top}` is not in the table of who may know whom");
        return vec![Breach { line: 1, what }];
    };
    let named = source.names();
    let ours = named.ours.into_iter().filter(|(_, path)| {
        let allowed = is_part(path, top) || rule.may_use.iter().any(|may| is_part(path, may));
        !allowed || rule.never.iter().any(|never| is_part(path, never))
    });
    let words = named.words.into_iter().filter(|(_, word)| {
        rule.no_word.iter().any(|no| {
            if no.contains("::") { is_part(word, no) } else { word.split("::").any(|part| part == *no) }
        })
    });
    ours.chain(words)
        .map(|(line, named)| Breach { line, what: format!("`{}` must not know `{named}`", rule.module) })
        .collect()
}

/// Whether `path` is `whole` or lies in it.
fn is_part(path: &str, whole: &str) -> bool {
    path.strip_prefix(whole).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What of `text` breaks the rules, as the last word of each message.
    fn named(path: &str, text: &str) -> Vec<String> {
        let last = |breach: Breach| breach.what.rsplit('`').nth(1).map(str::to_owned);
        breaches(&Source::new(path, text.to_owned())).into_iter().filter_map(last).collect()
    }

    #[test]
    fn edges_outside_the_table_are_found() {
        let cases: &[(&str, &str, &[&str])] = &[
            ("src/card/mod.rs", "use crate::terms::Digest;", &[]),
            ("src/card/mod.rs", "use crate::fence::Fence;", &["fence::Fence"]),
            ("src/card/a.rs", "fn f() { crate::view::x() }", &["view::x"]),
            ("src/card/a.rs", "use std::time::Duration;", &[]),
            ("src/card/a.rs", "use std::{fs, time::Instant};", &["std::fs", "std::time::Instant"]),
            ("src/fence/mod.rs", "async fn f() {}", &["async"]),
            ("src/view/mod.rs", "use crate::ledger::{Entry, postgres::Store};", &["ledger::postgres::Store"]),
            (
                "src/view/mod.rs",
                "use crate::ledger; type S = ledger::sqlite::Store;",
                &["ledger::sqlite::Store"],
            ),
            ("src/ledger/mod.rs", "fn f(e: sqlx::Error) {}", &["sqlx::Error"]),
            ("src/ledger/postgres/mod.rs", "fn f(e: sqlx::Error) {}", &[]),
            ("src/api/http/mod.rs", "use super::grpc::convert;", &["api::grpc::convert"]),
            ("src/api/http/routes/a.rs", "use super::super::super::grpc;", &["api::grpc"]),
            ("src/api/http/mod.rs", "mod a { use super::query; use super::super::grpc; }", &["api::grpc"]),
            ("src/api/grpc/mod.rs", "use crate::api::status;", &[]),
            ("src/cli/history.rs", "use crate::ledger::{chain::Verifier, Entry};", &["ledger::Entry"]),
            ("src/cli/demo.rs", "use crate::server;", &[]),
            ("src/cli/list.rs", "use crate::server;", &["server"]),
            ("src/main.rs", "fn main() { cardfence::server::run() }", &["server::run"]),
            ("src/ledger/mod.rs", "macro_rules! a { () => { $crate::b!($crate::api::c!()); } }", &["api::c"]),
            ("src/surprise.rs", "", &["surprise"]),
            ("src/ledger/sqlite/read.rs", "use crate::clock::Clock;", &[]),
            ("src/ledger/postgres/read.rs", "use crate::clock::Clock;", &["clock::Clock"]),
        ];
        for (path, text, expected) in cases {
            assert_eq!(named(path, text), *expected, "{path}: {text}");
        }
    }

    #[test]
    fn tests_comments_and_strings_are_nobodys_business() {
        for text in [
            "#[cfg(test)] mod tests { use crate::server; }",
            "#[cfg(test)] #[path = \"x.rs\"] pub(crate) mod tests;",
            "#[cfg(test)] use crate::server;",
            "/// As `crate::server` does.\nfn f() {}",
            "fn f() -> &'static str { \"crate::server\" }",
        ] {
            assert_eq!(named("src/card/mod.rs", text), [""; 0], "{text}");
        }
        let after = "#[cfg(test)] fn f() {} use crate::server;";
        assert_eq!(named("src/card/mod.rs", after), ["server"]);
    }
}
