//! What things are called.

mod digest;

pub use digest::{Digest, InvalidDigest};
