//! Why a command did not do what it was asked. `refusal` prints it; this says how the process ends.

use std::io;
use std::time::Duration;

use bytes::Bytes;

use super::exit::Exit;
use crate::terms::Reason;
use crate::wire::Problem;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// The registry said no, and why.
    #[error("refused: {}", .0.problem.reason)]
    Refused(Box<Refused>),
    /// No answer came.
    #[error("no answer from {server}: {why}")]
    Unreachable { server: String, why: String },
    /// An answer came that no registry gives: something else listens there, or stands between.
    #[error("{server} answered {status}, which is not an answer of a registry: {text}")]
    Foreign { server: String, status: u16, text: String },
    /// The command makes no sense as it was given.
    #[error("{0}")]
    Usage(String),
    #[error("{0}")]
    Failed(String),
    /// What was to be printed could not be.
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
}

/// A refusal as it came over the wire.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) problem: Problem,
    /// The problem's own text, for programs: it may hold members that this version does not know.
    pub(super) json: Bytes,
    /// The caller's own round trip, by which its bound on staleness has aged.
    pub(super) elapsed: Duration,
}

impl Refused {
    /// The reason, where this version knows it.
    pub(super) fn reason(&self) -> Option<Reason> {
        Reason::ALL.iter().copied().find(|reason| reason.slug() == self.problem.reason)
    }
}

impl Failure {
    pub(super) fn exit(&self) -> Exit {
        match self {
            Self::Refused(refused) => {
                refused.reason().map_or_else(|| Exit::of_status(refused.problem.status), Exit::of)
            }
            Self::Unreachable { .. } => Exit::Unavailable,
            Self::Foreign { status, .. } => match Exit::of_status(*status) {
                // It says nothing of agents or fences.
                Exit::NotFound | Exit::FenceRefused => Exit::Failed,
                exit => exit,
            },
            Self::Usage(_) => Exit::Usage,
            Self::Failed(_) | Self::Output(_) => Exit::Failed,
        }
    }
}

/// A failure that only has a text.
pub(super) fn failed(text: impl Into<String>) -> Failure {
    Failure::Failed(text.into())
}

/// An error and all that caused it, on one line: the only place that prints a chain.
pub(super) fn chained(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let told = error.to_string();
        // Some errors print their cause themselves.
        if !text.ends_with(&told) {
            text.push_str(": ");
            text.push_str(&told);
        }
        cause = error.source();
    }
    text
}
