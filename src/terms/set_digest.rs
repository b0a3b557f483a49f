//! One number for a whole set of agents: what a checkpoint proves a subscriber's copy with.
//!
//! It is the sum modulo 2^256 of one SHA-256 for each live agent, so that it can be kept up to date one change at a
//! time, and sums of namespaces add up. Equal sums mean equal sets, as far as SHA-256 is to be trusted with what
//! the registry itself put in.

use std::fmt;

use super::{AgentName, Digest};

/// The sum over a set of agents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SetDigest([u64; 4]);

impl SetDigest {
    /// Of one live agent: SHA-256 of `<namespace>/<name>`, NUL, the revision in decimal, NUL, and the raw digest as
    /// `sha256:<hex>`.
    pub fn of(agent: &AgentName, revision: u64, raw_digest: &Digest) -> Self {
        let text = format!("{agent}\0{revision}\0{}", raw_digest.tagged());
        let digest = Digest::of(text.as_bytes());
        let mut words = [0; 4];
        // The least significant word first.
        for (word, bytes) in words.iter_mut().zip(digest.as_bytes().rchunks_exact(8)) {
            let mut buffer = [0; 8];
            buffer.copy_from_slice(bytes);
            *word = u64::from_be_bytes(buffer);
        }
        Self(words)
    }

    /// With another set's sum added.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let mut carry = false;
        let mut sum = [0; 4];
        for (sum, (a, b)) in sum.iter_mut().zip(self.0.into_iter().zip(other.0)) {
            let (partial, first) = a.overflowing_add(b);
            let (total, second) = partial.overflowing_add(u64::from(carry));
            *sum = total;
            carry = first || second;
        }
        Self(sum)
    }

    /// With a part's sum taken out.
    #[must_use]
    pub fn minus(self, part: Self) -> Self {
        let mut borrow = false;
        let mut rest = [0; 4];
        for (rest, (a, b)) in rest.iter_mut().zip(self.0.into_iter().zip(part.0)) {
            let (partial, first) = a.overflowing_sub(b);
            let (total, second) = partial.overflowing_sub(u64::from(borrow));
            *rest = total;
            borrow = first || second;
        }
        Self(rest)
    }
}

/// 64 lower-case hex digits, the most significant first.
impl fmt::Display for SetDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().rev().try_for_each(|word| write!(f, "{word:016x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_digests_add_up_modulo_two_to_the_256() {
        let one = SetDigest::of(&"a/one".parse().unwrap(), 1, &Digest::of(b"1"));
        let two = SetDigest::of(&"b/two".parse().unwrap(), 7, &Digest::of(b"2"));
        assert_eq!(one.plus(two), two.plus(one));
        assert_eq!(one.plus(two).minus(one), two);
        assert_eq!(SetDigest::default().minus(one).plus(one), SetDigest::default());
        let all_ones = SetDigest([u64::MAX; 4]);
        assert_eq!(all_ones.plus(SetDigest([1, 0, 0, 0])), SetDigest::default());
        assert_eq!(SetDigest::default().minus(SetDigest([1, 0, 0, 0])), all_ones);
    }

    #[test]
    fn a_set_of_one_is_the_digest_itself() {
        let raw = Digest::of(b"card");
        let text = format!("acme/worker\u{0}12\u{0}sha256:{}", raw.hex());
        let one = SetDigest::of(&"acme/worker".parse().unwrap(), 12, &raw);
        assert_eq!(one.to_string(), Digest::of(text.as_bytes()).hex());
    }
}
