//! The demo's agents: their cards, before and after the deploys that do the harm.

use bytes::Bytes;

/// An agent and its card.
#[derive(Debug, Clone, Copy)]
pub(super) struct Member {
    pub(super) agent: &'static str,
    card: &'static str,
}

impl Member {
    pub(super) fn card(&self) -> Bytes {
        Bytes::from_static(self.card.as_bytes())
    }
}

const fn member(agent: &'static str, card: &'static str) -> Member {
    Member { agent, card }
}

pub(super) const SUMMARIZER: &str = "acme/summarizer";
pub(super) const WORKER: &str = "acme/worker-7";
pub(super) const REPORTER: &str = "acme/reporter";

/// What is registered at first: one card of every generation that is still about.
pub(super) const FLEET: &[Member] = &[
    member(SUMMARIZER, include_str!("summarizer.json")),
    member(WORKER, include_str!("worker-7.json")),
    member(REPORTER, include_str!("reporter.json")),
    member("globex/translator", include_str!("translator.json")),
    member("globex/archivist", include_str!("archivist.json")),
    member("initech/clerk", include_str!("clerk.json")),
];

/// One skill is gone and another there, under the same version.
pub(super) const REPLACED: Member = member(SUMMARIZER, include_str!("summarizer-replaced.json"));

/// Another endpoint and another skill, under a new version.
pub(super) const MOVED: Member = member(WORKER, include_str!("worker-7-moved.json"));

/// The same skill id, other output modes, the same version.
pub(super) const REUSED: Member = member(REPORTER, include_str!("reporter-reused.json"));
