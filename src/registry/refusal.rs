//! A refusal: the reason, and everything a caller needs to understand it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::card::{Card, Change, Violation};
use crate::fence::Condition;
use crate::terms::{AgentName, Freshness, Reason, Retry};

/// Why nothing was answered, or nothing was written. Boxed, since it is large and rare.
#[derive(Debug, Clone)]
pub struct Refusal(Box<Parts>);

/// What a refusal says. Only `reason` and `detail` are always there.
#[derive(Debug, Clone)]
pub struct Parts {
    pub reason: Reason,
    /// What was wrong and what is allowed, for people. Never holds internal text.
    pub detail: String,
    pub conditions: Vec<Condition>,
    pub violations: Vec<Violation>,
    pub freshness: Option<Freshness>,
    /// The card that was refused, so that the failure shows at the caller with the card in hand.
    pub card: Option<Arc<Card>>,
    pub agent: Option<AgentName>,
    pub revision: Option<u64>,
    /// The change that a refused write would have made.
    pub change: Option<Change>,
    /// When the call may be sent again as it is; `None`: it must not be.
    pub retry_after: Option<Duration>,
}

/// The pause before a call that may be sent again, where the refusal names none.
const PAUSE: Duration = Duration::from_secs(1);

impl Refusal {
    /// A reason that may be retried gets a pause. `outcome_unknown` gets none here: whether the write may be sent
    /// again depends on whose request id it had, which `registry::write` knows.
    pub fn new(reason: Reason, detail: impl Into<String>) -> Self {
        Self(Box::new(Parts {
            reason,
            detail: detail.into(),
            conditions: Vec::new(),
            violations: Vec::new(),
            freshness: None,
            card: None,
            agent: None,
            revision: None,
            change: None,
            retry_after: matches!(reason.retry(), Retry::Yes | Retry::Later).then_some(PAUSE),
        }))
    }

    pub fn invalid(detail: impl Into<String>) -> Self {
        Self::new(Reason::InvalidArgument, detail)
    }

    /// `number`, if it can be that of a revision.
    ///
    /// # Errors
    /// `invalid_argument` for 0, naming `what`: revisions count from 1.
    pub fn unless_revision(what: &str, number: u64) -> Result<u64, Self> {
        if number == 0 {
            return Err(Self::invalid(format!("{what}: revisions are numbered from 1")));
        }
        Ok(number)
    }

    /// A failure of this node's own; the text is fixed, since internal text never reaches a caller.
    pub fn internal() -> Self {
        Self::new(Reason::Internal, "the registry failed; the failure is in its log")
    }

    pub fn store_unavailable() -> Self {
        Self::new(Reason::StoreUnavailable, "the store did not answer in time")
    }

    pub fn reason(&self) -> Reason {
        self.0.reason
    }

    pub fn parts(&self) -> &Parts {
        &self.0
    }

    pub fn into_parts(self) -> Parts {
        *self.0
    }

    #[must_use]
    pub fn retry_after(mut self, after: Duration) -> Self {
        self.0.retry_after = Some(after);
        self
    }

    #[must_use]
    pub fn about(mut self, agent: &AgentName) -> Self {
        self.0.agent = Some(agent.clone());
        self
    }

    #[must_use]
    pub fn with(mut self, add: impl FnOnce(&mut Parts)) -> Self {
        add(&mut self.0);
        self
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.reason, self.0.detail)
    }
}

impl std::error::Error for Refusal {}
