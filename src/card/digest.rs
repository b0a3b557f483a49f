//! The content digest: what a card says, whatever its bytes.
//!
//! Owns what is left out of it: `signatures`, so that signing a card again is not a change of content.
//! Canonical JSON (RFC 8785) is the crate's; the digest of the bytes themselves is `Digest::of`.

use std::io;

use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::node::Object;
use super::view::View;
use crate::terms::Digest;

/// The content digest of a document. None if the canonicaliser refuses it, which a scanned tree rules out.
pub(super) fn content(root: &View<'_, '_>) -> Option<Digest> {
    canonical(&Object(root.members, "signatures"))
}

/// The digest of the signatures, if there are any.
pub(super) fn signatures(root: &View<'_, '_>) -> Option<Digest> {
    canonical(root.find("signatures")?.value)
}

/// The digest of the canonical JSON of `value`.
fn canonical(value: &impl Serialize) -> Option<Digest> {
    let mut hasher = Hashing(Sha256::new());
    serde_json_canonicalizer::to_writer(value, &mut hasher).ok()?;
    Some(Digest::from_bytes(hasher.0.finalize().into()))
}

/// A writer that keeps nothing but the digest.
struct Hashing(Sha256);

impl io::Write for Hashing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
