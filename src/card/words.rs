//! Closed vocabularies: an enum, its words, and the way back.
//!
//! Owns the one macro that ties a variant to its word, so that the two directions cannot drift apart.
//! The words are public: they are stored, sent and matched by callers, and never change.

use std::fmt;

/// A word that is none of a closed vocabulary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownWord {
    pub word: String,
    pub allowed: &'static [&'static str],
}

impl fmt::Display for UnknownWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is none of {}", self.word, self.allowed.join(", "))
    }
}

impl std::error::Error for UnknownWord {}

/// Declares an enum whose variants are words: `as_str`, `Display`, `FromStr` and `ALL`.
macro_rules! vocabulary {
    ($(#[$doc:meta])* $name:ident { $($(#[$note:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$note])* $variant,)+
        }

        impl $name {
            /// Every variant, in order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::card::words::UnknownWord;

            fn from_str(word: &str) -> Result<Self, Self::Err> {
                match word {
                    $($word => Ok(Self::$variant),)+
                    _ => Err($crate::card::words::UnknownWord {
                        word: word.to_owned(),
                        allowed: &[$($word,)+],
                    }),
                }
            }
        }
    };
}

pub(super) use vocabulary;

#[cfg(test)]
mod tests {
    use crate::card::{Class, Code, Generation, ItemKind, Oddity};

    #[test]
    fn every_word_reads_back_as_its_variant() {
        macro_rules! check {
            ($($name:ident)+) => {
                $(for word in $name::ALL {
                    assert_eq!(word.as_str().parse::<$name>().as_ref(), Ok(word));
                })+
            };
        }
        check!(Class Code Generation ItemKind Oddity);
    }

    #[test]
    fn a_foreign_word_is_refused_with_what_is_allowed() {
        let error = "grave".parse::<Class>().unwrap_err();
        assert_eq!(error.to_string(), "`grave` is none of cosmetic, additive, breaking");
    }
}
