//! Where evidence goes: to the registry, so that others learn of it.

use std::sync::Arc;

use async_trait::async_trait;

use crate::client::answer::Error;
use crate::terms::{AgentName, Digest};

/// That an agent does not behave as its card says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    pub agent: AgentName,
    /// Of the card that was negotiated with.
    pub content_digest: Digest,
    pub revision: u64,
    pub skill: String,
    /// `state`, `error`, `error_text`, `http`, `skill_not_in_card` or `artifact`.
    pub kind: &'static str,
    /// For people; at most 500 characters.
    pub detail: String,
}

/// What became of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reported {
    Taken,
    /// The registry takes no reports.
    Unsupported,
}

/// Takes drift reports. A guard sends one for each card that evidence speaks against, and waits a bounded time for it;
/// whatever becomes of it, the evidence holds.
#[async_trait]
pub trait Reports: Send + Sync {
    /// # Errors
    /// Whatever kept the report from being taken.
    async fn report(&self, report: &Report) -> Result<Reported, Error>;
}

#[async_trait]
impl<R: Reports + ?Sized> Reports for Arc<R> {
    async fn report(&self, report: &Report) -> Result<Reported, Error> {
        (**self).report(report).await
    }
}

/// Reports to nobody.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoReports;

#[async_trait]
impl Reports for NoReports {
    async fn report(&self, _: &Report) -> Result<Reported, Error> {
        Ok(Reported::Unsupported)
    }
}
