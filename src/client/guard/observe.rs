//! The events of a guard, and how often each happened.

use futures::Stream;

use crate::client::events::{Count, Observed, Teller};
use crate::terms::{AgentName, Digest, Reason};

macro_rules! events {
    ($($(#[$doc:meta])* $name:ident $({ $($field:ident: $type:ty),* })? = $count:ident;)*) => {
        /// Something that a guard found or did.
        #[derive(Debug, Clone, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Event { $($(#[$doc])* $name { agent: AgentName, $($($field: $type),*)? },)* }

        /// How often each event happened since the guard was made.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        #[non_exhaustive]
        pub struct Counts { $(pub $count: u64,)* }

        #[derive(Debug, Default)]
        struct Counters { $($count: Count,)* }

        impl Counters {
            fn count(&self, event: &Event) {
                match event { $(Event::$name { .. } => self.$count.raise(),)* }
            }

            fn counts(&self) -> Counts {
                Counts { $($count: self.$count.get(),)* }
            }
        }

        impl Counts {
            /// Each count with its name, for whatever collects metrics.
            pub fn each(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($count), self.$count),)*].into_iter()
            }
        }
    };
}

events! {
    /// A card in hand started a task; nobody was asked.
    MemoServed { revision: u64 } = memo_served;
    /// A card was read for a task.
    Resolved { revision: u64 } = resolved;
    /// A start was refused: the card is stale, or cannot be proven not to be.
    StaleCardRefused { reason: Reason } = stale_card_refused;
    /// A start was refused: the card does not cover the task.
    CapabilityMismatch { reason: Reason } = capability_mismatch;
    /// A start was refused: the card is quarantined.
    QuarantineRefused { content_digest: Digest } = quarantine_refused;
    /// An answer shows that a card is stale.
    StaleCardEvidence { revision: u64, found: String } = stale_card_evidence;
    /// An answer delivers what the card does not allow.
    ArtifactDrift { revision: u64, found: String } = artifact_drift;
    /// An answer is none that A2A defines.
    UnreadableResponse = unreadable_response;
    /// From now on no task starts with this card, until its origin is confirmed.
    Quarantined { content_digest: Digest } = quarantined;
    /// The origin of a quarantined card was confirmed.
    Released { content_digest: Digest } = released;
    /// The agent was read anew on evidence.
    Refetched { revision: u64 } = refetched;
    /// It could not be read anew.
    RefetchFailed { cause: String } = refetch_failed;
    /// The registry took the drift report.
    DriftReported { content_digest: Digest } = drift_reported;
    /// The registry takes no drift reports.
    DriftUnsupported = drift_unsupported;
    /// The drift report was not taken.
    DriftFailed { cause: String } = drift_failed;
    /// Push notifications were withdrawn before a webhook was registered.
    DiscoveryDowngrade = discovery_downgrade;
    /// What a held task needs is gone.
    ContinuationBlocked = continuation_blocked;
    /// The registry could not be asked, or could not prove its answer: at `start`, `webhook` or `continue`.
    DiscoveryUnavailable { at: &'static str } = discovery_unavailable;
}

/// Tells and counts.
#[derive(Debug)]
pub(super) struct Observer {
    teller: Teller<Event>,
    counters: Counters,
}

impl Observer {
    pub(super) fn new() -> Self {
        Self { teller: Teller::new(), counters: Counters::default() }
    }

    pub(super) fn tell(&self, event: Event) {
        self.counters.count(&event);
        self.teller.tell(event);
    }

    pub(super) fn counts(&self) -> Counts {
        self.counters.counts()
    }

    pub(super) fn listen(&self) -> impl Stream<Item = Observed<Event>> + Send + Unpin + use<> {
        self.teller.listen()
    }
}
