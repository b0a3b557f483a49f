//! JSON ↔ domain: the shapes of the HTTP wire, shared by `api::http`, which writes them, and the CLI, which
//! reads them.
//!
//! Member names are API. Shapes are plain structs of texts and numbers and know no domain type; [`convert`] is
//! the only file that makes them of the registry's answers, [`Fence`] the only one that is read into the
//! domain. Times are RFC 3339, durations in answers whole milliseconds rounded up, digests `sha256:<hex>` for
//! raw and content digests and bare hex for fingerprints and the chain.
//!
//! Cards are never written anew: [`splice()`] puts the stored bytes into an answer as they are.

mod batch;
mod confirm;
mod convert;
mod envelope;
mod fence;
mod freshness;
mod history;
mod inspection;
mod object;
mod problem;
mod replicas;
mod splice;
mod watch;
mod write;

pub use batch::{BatchAnswer, BatchItem, BatchRequest, BatchWanted};
pub use confirm::{Confirm, ConfirmAnswer, ConfirmAnswered, ConfirmBatch, ConfirmWanted, Confirmation};
pub use convert::{agent_items, replica_list, revision_items};
pub use envelope::{AgentItem, Envelope, List};
pub use fence::{Fence, Invalid, RevisionText, Skill, duration, max_staleness, position};
pub use freshness::{Freshness, Health, Watermark};
pub use history::{Diff, LedgerEntry, RevisionItem};
pub use inspection::Inspection;
pub use problem::{Condition, Problem, Violation};
pub use replicas::{MissingReplica, OmittedReplicas, ReplicaItem, Replicated};
pub use splice::{Spliced, splice};
pub use watch::{AgentEvent, WatchCheckpoint, WatchEnd, WatchReset, WatchSynced};
pub use write::{Change, Item, Registered, Warning};
