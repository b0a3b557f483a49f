//! Every metric of cardfence, defined and described in one place; `/metrics` encodes them.
//!
//! Names begin with `cardfence_`, durations are in seconds. The README's table lists the same names
//! (`tests/house.rs` compares them).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

/// Labels of a request: which wire, which method, how it ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RequestLabels {
    pub wire: &'static str,
    pub method: &'static str,
    pub code: u16,
}

/// One label that says how something ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct OutcomeLabels {
    pub outcome: &'static str,
}

/// One label that says why something ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ReasonLabels {
    pub reason: &'static str,
}

/// One label that names a class of change.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ClassLabels {
    pub class: &'static str,
}

type FloatGauge = Gauge<f64, AtomicU64>;

/// The metrics of one node. Cheap to clone.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Registry>,
    pub requests: Family<RequestLabels, Counter>,
    pub request_seconds: Histogram,
    pub resolves: Family<OutcomeLabels, Counter>,
    /// Members of `resolves`, held so that a resolve that passes takes no lock to find them.
    pub resolved: Counter,
    pub not_modified: Counter,
    pub staleness_seconds: FloatGauge,
    pub head_minus_applied: Gauge,
    pub position: Gauge,
    pub agents: Gauge,
    pub confirm_seconds: Histogram,
    pub confirm_failures: Counter,
    pub reloads: Counter,
    pub commit_batch_writes: Histogram,
    pub commit_seconds: Histogram,
    pub commit_failures: Counter,
    pub write_queue: Gauge,
    pub writes: Family<OutcomeLabels, Counter>,
    pub changes: Family<ClassLabels, Counter>,
    pub silent_mutations: Counter,
    pub subscribers: Gauge,
    pub streams_ended: Family<ReasonLabels, Counter>,
    pub events_sent: Counter,
    pub subscriber_wakes: Counter,
    pub edges: Gauge,
    pub snapshots_given: Counter,
    pub sessions: Counter,
    pub snapshots_taken: Counter,
    pub origin_confirmations: Family<OutcomeLabels, Counter>,
    pub service_tick_failures: Counter,
    pub replicas: Gauge,
    pub replicas_behind: Gauge,
    pub report_failures: Counter,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    pub fn new() -> Self {
        // 100 µs to 26 s: from a resolve out of memory to a write that waits for a database.
        let seconds = || Histogram::new(exponential_buckets(0.0001, 2.0, 19));
        let mut registry = Registry::default();
        let resolves = Family::<OutcomeLabels, Counter>::default();
        let resolved = resolves.get_or_create_owned(&OutcomeLabels { outcome: "resolved" });
        let not_modified = resolves.get_or_create_owned(&OutcomeLabels { outcome: "not_modified" });
        let metrics = Self {
            registry: Arc::default(),
            requests: Family::default(),
            request_seconds: seconds(),
            resolves,
            resolved,
            not_modified,
            staleness_seconds: FloatGauge::default(),
            head_minus_applied: Gauge::default(),
            position: Gauge::default(),
            agents: Gauge::default(),
            confirm_seconds: seconds(),
            confirm_failures: Counter::default(),
            reloads: Counter::default(),
            commit_batch_writes: Histogram::new(exponential_buckets(1.0, 2.0, 10)),
            commit_seconds: seconds(),
            commit_failures: Counter::default(),
            write_queue: Gauge::default(),
            writes: Family::default(),
            changes: Family::default(),
            silent_mutations: Counter::default(),
            subscribers: Gauge::default(),
            streams_ended: Family::default(),
            events_sent: Counter::default(),
            subscriber_wakes: Counter::default(),
            edges: Gauge::default(),
            snapshots_given: Counter::default(),
            sessions: Counter::default(),
            snapshots_taken: Counter::default(),
            origin_confirmations: Family::default(),
            service_tick_failures: Counter::default(),
            replicas: Gauge::default(),
            replicas_behind: Gauge::default(),
            report_failures: Counter::default(),
        };
        // The client library adds `_total` to counters.
        registry.register(
            "cardfence_requests",
            "Requests by wire, method and code",
            metrics.requests.clone(),
        );
        registry.register(
            "cardfence_request_seconds",
            "Time from a request's head to its answer's head",
            metrics.request_seconds.clone(),
        );
        registry.register(
            "cardfence_resolves",
            "Resolves by outcome: resolved, not_modified or the reason of the refusal; each agent of a batch and each resolve at a past position is one",
            metrics.resolves.clone(),
        );
        registry.register(
            "cardfence_staleness_seconds",
            "Staleness of the view when scraped; NaN when unknown",
            metrics.staleness_seconds.clone(),
        );
        registry.register(
            "cardfence_head_minus_applied",
            "Entries that the authority had and the view had not, at the last confirmation",
            metrics.head_minus_applied.clone(),
        );
        registry.register(
            "cardfence_position",
            "Sequence number that the view has applied",
            metrics.position.clone(),
        );
        registry.register(
            "cardfence_agents",
            "Agents in the view that are not retired",
            metrics.agents.clone(),
        );
        registry.register(
            "cardfence_confirm_seconds",
            "Time that a confirmation of the view took",
            metrics.confirm_seconds.clone(),
        );
        registry.register(
            "cardfence_confirm_failures",
            "Confirmations that failed: the authority was not reached, or contradicted the view",
            metrics.confirm_failures.clone(),
        );
        registry.register(
            "cardfence_reloads",
            "Times that the view was loaded anew because the history had diverged",
            metrics.reloads.clone(),
        );
        registry.register(
            "cardfence_commit_batch_writes",
            "Writes that one transaction committed",
            metrics.commit_batch_writes.clone(),
        );
        registry.register(
            "cardfence_commit_seconds",
            "Time that a batch took, lock included",
            metrics.commit_seconds.clone(),
        );
        registry.register(
            "cardfence_commit_failures",
            "Attempts to commit a batch that failed or whose answer was lost",
            metrics.commit_failures.clone(),
        );
        registry.register(
            "cardfence_write_queue",
            "Writes that wait for the writer",
            metrics.write_queue.clone(),
        );
        registry.register(
            "cardfence_writes",
            "Registers, retires and rollbacks by outcome or reason",
            metrics.writes.clone(),
        );
        registry.register("cardfence_changes", "Accepted changes by class", metrics.changes.clone());
        registry.register(
            "cardfence_silent_mutations",
            "Accepted changes to what decides negotiation that left the card's version alone",
            metrics.silent_mutations.clone(),
        );
        registry.register(
            "cardfence_subscribers",
            "Watch streams that are open",
            metrics.subscribers.clone(),
        );
        registry.register(
            "cardfence_streams_ended",
            "Watch streams that have ended, by reason; `gone` when the subscriber went away",
            metrics.streams_ended.clone(),
        );
        registry.register(
            "cardfence_events_sent",
            "Events that were handed to watch streams, checkpoints included",
            metrics.events_sent.clone(),
        );
        registry.register(
            "cardfence_subscriber_wakes",
            "Times that a subscriber was woken by a change; one that does not concern it wakes none",
            metrics.subscriber_wakes.clone(),
        );
        registry.register("cardfence_edges", "Edges that follow this node now", metrics.edges.clone());
        registry.register(
            "cardfence_snapshots_given",
            "Snapshots that edges were given, since the entries they wanted are not in memory any more",
            metrics.snapshots_given.clone(),
        );
        registry.register(
            "cardfence_sessions",
            "Sessions that the view opened with its database or upstream",
            metrics.sessions.clone(),
        );
        registry.register(
            "cardfence_snapshots_taken",
            "Snapshots that the view began from, instead of going on entry by entry",
            metrics.snapshots_taken.clone(),
        );
        registry.register(
            "cardfence_origin_confirmations",
            "Heartbeats of agents by outcome: confirmed or the reason of the refusal",
            metrics.origin_confirmations.clone(),
        );
        registry.register(
            "cardfence_service_tick_failures",
            "Ticks of the service clock that failed",
            metrics.service_tick_failures.clone(),
        );
        registry.register(
            "cardfence_replicas",
            "Replicas that reported to this node within a minute, with all below them and itself",
            metrics.replicas.clone(),
        );
        registry.register(
            "cardfence_replicas_behind",
            "Entries that the one of these that lags most is behind this node",
            metrics.replicas_behind.clone(),
        );
        registry.register(
            "cardfence_report_failures",
            "Reports of this node's own position that failed",
            metrics.report_failures.clone(),
        );
        Self { registry: Arc::new(registry), ..metrics }
    }

    /// The metrics in the OpenMetrics text format, with the view's staleness as it is now.
    pub fn encode(&self, staleness: Option<Duration>) -> String {
        self.staleness_seconds.set(staleness.map_or(f64::NAN, |staleness| staleness.as_secs_f64()));
        let mut text = String::new();
        // Writing to a String cannot fail; what was encoded until an error is still the truth.
        let _ = encode(&mut text, &self.registry);
        text
    }
}
