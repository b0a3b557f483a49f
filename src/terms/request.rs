//! Who asks, and under which id.

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, LazyLock};

/// Who did something. Until credentials exist everyone is `anonymous`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Principal(Arc<str>);

impl Principal {
    pub fn anonymous() -> Self {
        static ANONYMOUS: LazyLock<Principal> = LazyLock::new(|| Principal("anonymous".into()));
        ANONYMOUS.clone()
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Principal {
    fn from(name: &str) -> Self {
        Self(name.into())
    }
}

/// The id under which a write is done at most once per principal: 1 to 128 visible ASCII characters.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RequestId(Arc<str>);

impl RequestId {
    /// An id from 128 random bits, for a caller that sent none.
    pub fn random() -> Self {
        Self(hex::encode(random_bytes::<16>()).into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A text that is no request id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a request id of {0} bytes is not allowed: 1 to 128 visible ASCII characters")]
pub struct InvalidRequestId(usize);

impl FromStr for RequestId {
    type Err = InvalidRequestId;

    fn from_str(text: &str) -> Result<Self, InvalidRequestId> {
        if (1..=128).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic()) {
            Ok(Self(text.into()))
        } else {
            Err(InvalidRequestId(text.len()))
        }
    }
}

/// Random bytes of the operating system.
///
/// # Panics
/// When the operating system has no randomness to give: nothing could be made unguessable without it.
pub fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    if let Err(error) = getrandom::fill(&mut bytes) {
        panic!("the operating system gives no random bytes: {error}");
    }
    bytes
}
