//! SHA-256 digests as values.
//!
//! Owns the type and its two text forms: `sha256:<hex>` for raw and content digests, bare `<hex>` for
//! fingerprints and chain digests. Does not decide what is hashed; that is `card::digest` and `ledger::chain`.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest as _, Sha256};

/// A SHA-256 digest: 32 bytes, compared and ordered as such.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The digest of two byte strings, one after the other.
    pub fn of_both(first: &[u8], second: &[u8]) -> Self {
        let mut hasher = Sha256::new();
        hasher.update(first);
        hasher.update(second);
        Self(hasher.finalize().into())
    }

    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// 64 lower-case hex digits: the form of fingerprints and chain digests.
    pub fn hex(&self) -> String {
        hex::encode(self.0)
    }

    /// `sha256:` and 64 lower-case hex digits: the form of raw and content digests.
    pub fn tagged(&self) -> String {
        let mut text = String::with_capacity(71);
        text.push_str("sha256:");
        text.push_str(&self.hex());
        text
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0; 64];
        if hex::encode_to_slice(self.0, &mut text).is_err() {
            return Err(fmt::Error);
        }
        f.write_str(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

/// A text that is no SHA-256 digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{}` is not a SHA-256 digest: 64 lower-case hex digits, after `sha256:` where one is allowed",
    .0.chars().take(80).collect::<String>().escape_debug()
)]
pub struct InvalidDigest(pub String);

impl TryFrom<&[u8]> for Digest {
    type Error = InvalidDigest;

    fn try_from(bytes: &[u8]) -> Result<Self, InvalidDigest> {
        bytes.try_into().map(Self).map_err(|_| InvalidDigest(hex::encode(bytes)))
    }
}

/// Reads both text forms.
impl FromStr for Digest {
    type Err = InvalidDigest;

    fn from_str(text: &str) -> Result<Self, InvalidDigest> {
        let digits = text.strip_prefix("sha256:").unwrap_or(text);
        let mut bytes = [0; 32];
        let lower = digits.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        if !lower || hex::decode_to_slice(digits, &mut bytes).is_err() {
            return Err(InvalidDigest(text.to_owned()));
        }
        Ok(Self(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_text_forms_round_trip() {
        let digest = Digest::of(b"");
        assert_eq!(digest.hex(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        assert_eq!(digest.tagged().parse(), Ok(digest));
        assert_eq!(digest.hex().parse(), Ok(digest));
        assert_eq!(digest.to_string(), digest.hex());
    }

    #[test]
    fn upper_case_short_and_foreign_text_is_refused() {
        let hex = Digest::of(b"").hex();
        for text in ["", "sha256:", "md5:abc", &hex[1..], &hex.to_uppercase(), &format!("sha256:{hex}0")] {
            assert!(text.parse::<Digest>().is_err(), "{text}");
        }
    }
}
