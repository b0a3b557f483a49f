//! What a card says. Bytes in, facts out.
//!
//! Owns the reading of A2A Agent Cards of every generation: which documents are usable, their digests and
//! fingerprints, their one normal form, and what a change from one to the next means. Pure: no IO, no clock,
//! no randomness, no tasks.
//!
//! Reading order: [`Card::check`] in `document` runs everything. `scan` (with `literal`) turns bytes into a
//! tree (`node`) and finds what JSON parsers hide; `generation` tells what kind of body it is; `normal` (with
//! `interface`, `skill`, `security`, all through `view`) derives the one form that everyone else reads, and `offer`
//! packs what fences ask of it;
//! `digest`, `fingerprint` and `negotiation` hash; `change` compares two cards. `finding` holds what is wrong or odd.
//!
//! Invariant: every fact about a card is a function of its bytes, and two conforming JSON readers agree on
//! what an accepted card says.

mod change;
mod change_items;
mod digest;
mod document;
mod finding;
mod fingerprint;
mod generation;
mod interface;
mod literal;
pub mod modes;
mod negotiation;
mod node;
mod normal;
mod offer;
mod scan;
mod security;
mod skill;
pub mod version;
mod view;
mod words;

pub use change::{Change, Class, Item, ItemKind};
pub use document::{Card, Inspection, Limits, Refused, inspect};
pub use finding::{Code, Oddity, Violation, Warning};
pub use generation::{Generation, Shape};
pub use interface::Interface;
pub use normal::{Capabilities, Extension, Modes, Normal};
pub use offer::{Offer, Offered};
pub use security::{Flow, Requirement, Scheme, Undefined};
pub use skill::Skill;
pub use words::UnknownWord;
