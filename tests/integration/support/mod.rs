//! What the integration tests stand on: clusters, proxies, server processes, and waiting without sleeping.
//!
//! Nothing here retries a failed assertion or skips a test: what is missing on the machine is a panic that
//! says how to install it. Everything that is started lives below one temporary folder (`scratch`), and dies
//! with it even when the test program is killed.

pub(crate) mod cards;
pub(crate) mod eventually;
pub(crate) mod http;
pub(crate) mod ports;
pub(crate) mod postgres;
pub(crate) mod processes;
pub(crate) mod proxy;
pub(crate) mod scratch;
pub(crate) mod server;

/// Says something to whoever reads the output of a failed test.
#[expect(clippy::print_stderr, reason = "the test runner shows captured standard error when a test fails")]
pub(crate) fn report(text: &str) {
    eprintln!("{text}");
}

/// The last `lines` lines of `text`: what a failure shows of a long log.
pub(crate) fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}
