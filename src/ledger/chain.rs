//! The hash chain: how entries are bound to each other and to their ledger. Pure.
//!
//! Digests are concatenated as 32 raw bytes; the ledger id, a random UUID, is hashed as text. A reader who may
//! not see a body can still verify from `{seq, digest, body_digest}`.

use crate::terms::Digest;

/// The digest before the first entry: `SHA-256("cardfence ledger v1\n" ‖ ledger id)`.
pub fn origin(ledger_id: &str) -> Digest {
    Digest::of_both(b"cardfence ledger v1\n", ledger_id.as_bytes())
}

/// `SHA-256(before ‖ body digest)`.
pub fn link(before: &Digest, body_digest: &Digest) -> Digest {
    Digest::of_both(before.as_bytes(), body_digest.as_bytes())
}

/// Where and how a chain is broken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    #[error("entry {found} follows entry {after}: sequence numbers must have no gap")]
    Gap { after: u64, found: u64 },
    #[error("the body of entry {seq} does not have the digest that the entry names")]
    Body { seq: u64 },
    #[error("the digest of entry {seq} does not follow from the one before")]
    Link { seq: u64 },
}

/// Verifies entries as they come, in order.
#[derive(Debug, Clone)]
pub struct Verifier {
    seq: u64,
    digest: Digest,
}

impl Verifier {
    /// From the beginning of the ledger `ledger_id`.
    pub fn new(ledger_id: &str) -> Self {
        Self { seq: 0, digest: origin(ledger_id) }
    }

    /// From an entry that is trusted.
    pub fn after(seq: u64, digest: Digest) -> Self {
        Self { seq, digest }
    }

    /// # Errors
    /// [`Broken`] at the first entry that does not follow.
    pub fn take(
        &mut self,
        seq: u64,
        digest: &Digest,
        body_digest: &Digest,
        body: Option<&[u8]>,
    ) -> Result<(), Broken> {
        if self.seq.checked_add(1) != Some(seq) {
            return Err(Broken::Gap { after: self.seq, found: seq });
        }
        if body.is_some_and(|body| Digest::of(body) != *body_digest) {
            return Err(Broken::Body { seq });
        }
        if link(&self.digest, body_digest) != *digest {
            return Err(Broken::Link { seq });
        }
        self.seq = seq;
        self.digest = *digest;
        Ok(())
    }

    /// The last entry that was verified.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    pub fn digest(&self) -> Digest {
        self.digest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "5f1b6f0e-8a0c-4a0a-9d5c-0e1f2a3b4c5d";

    fn entry(before: &Digest, body: &[u8]) -> (Digest, Digest) {
        let body_digest = Digest::of(body);
        (link(before, &body_digest), body_digest)
    }

    #[test]
    fn a_chain_verifies_and_a_changed_byte_does_not() {
        let (first, first_body) = entry(&origin(ID), b"one");
        let (second, second_body) = entry(&first, b"two");
        let mut verifier = Verifier::new(ID);
        assert_eq!(verifier.take(1, &first, &first_body, Some(b"one")), Ok(()));
        assert_eq!(verifier.take(3, &second, &second_body, None), Err(Broken::Gap { after: 1, found: 3 }));
        assert_eq!(verifier.take(2, &second, &second_body, Some(b"twO")), Err(Broken::Body { seq: 2 }));
        assert_eq!(verifier.take(2, &first, &second_body, None), Err(Broken::Link { seq: 2 }));
        assert_eq!(verifier.take(2, &second, &second_body, None), Ok(()));
        assert_eq!((verifier.seq(), verifier.digest()), (2, second));
    }

    #[test]
    fn another_ledger_begins_elsewhere() {
        let (first, body) = entry(&origin(ID), b"one");
        assert_eq!(Verifier::new("other").take(1, &first, &body, None), Err(Broken::Link { seq: 1 }));
    }
}
