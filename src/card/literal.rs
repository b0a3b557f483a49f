//! The two JSON literals with traps in them: numbers and strings.
//!
//! Owns their grammar (RFC 8259, nothing more) and what of it survives the way into a double and into
//! Unicode text. Knows nothing of documents; [`scan`](super::scan) turns its verdicts into findings.

use std::borrow::Cow;

use super::finding::Code;
use super::scan::Fault;

/// The largest integer that every JSON reader keeps: 2⁵³ − 1.
const LARGEST_INTEGER: u64 = (1 << 53) - 1;

/// A number literal, found but not yet read.
pub(super) struct Number {
    pub(super) value: Kind,
    pub(super) end: usize,
}

pub(super) enum Kind {
    Integer,
    Decimal,
}

impl Kind {
    /// The double that `literal` stands for, or why there is none, with what is allowed.
    pub(super) fn read(&self, literal: &str) -> Result<f64, (Code, &'static str)> {
        let digits = literal.trim_start_matches('-');
        if matches!(self, Self::Integer) {
            let value = digits.parse().ok().filter(|value: &u64| *value <= LARGEST_INTEGER);
            let Some(value) = value else {
                return Err((
                    Code::IntegerOutOfRange,
                    "is an integer beyond ±9007199254740991, the range allowed",
                ));
            };
            #[expect(clippy::cast_precision_loss, reason = "exact: at most 2^53 - 1")]
            let value = value as f64;
            return Ok(if digits.len() < literal.len() { -value } else { value });
        }
        let value: f64 = literal.parse().unwrap_or(f64::INFINITY);
        if value.is_infinite() {
            return Err((Code::NumberOverflow, "is beyond the range of a double, ±1.7976931348623157e308"));
        }
        let mantissa = digits.split(['e', 'E']).next().unwrap_or_default();
        if value == 0.0 && mantissa.bytes().any(|b| matches!(b, b'1'..=b'9')) {
            return Err((
                Code::NumberUnderflow,
                "would be read as 0; the smallest double above it is 5e-324",
            ));
        }
        Ok(value)
    }
}

/// Finds the end of the number literal that begins at `start`.
pub(super) fn number(bytes: &[u8], start: usize) -> Result<Number, Fault> {
    let digits = |mut at: usize| {
        while matches!(bytes.get(at), Some(b'0'..=b'9')) {
            at += 1;
        }
        at
    };
    let some_digits = |at: usize| match digits(at) {
        end if end == at => Err(Fault { at, expected: "a digit" }),
        end => Ok(end),
    };
    let first = start + usize::from(bytes.get(start) == Some(&b'-'));
    let mut at = match bytes.get(first) {
        Some(b'0') => first + 1,
        _ => some_digits(first)?,
    };
    let mut value = Kind::Integer;
    if bytes.get(at) == Some(&b'.') {
        at = some_digits(at + 1)?;
        value = Kind::Decimal;
    }
    if matches!(bytes.get(at), Some(b'e' | b'E')) {
        at += 1;
        at = some_digits(at + usize::from(matches!(bytes.get(at), Some(b'+' | b'-'))))?;
        value = Kind::Decimal;
    }
    Ok(Number { value, end: at })
}

/// A string, unescaped.
pub(super) struct Text<'a> {
    /// U+FFFD stands where half of a surrogate pair was.
    pub(super) text: Cow<'a, str>,
    pub(super) lone_surrogate: bool,
}

/// Reads the string whose opening quote is at `start`; gives also the byte after its closing quote.
pub(super) fn string(text: &str, start: usize) -> Result<(Text<'_>, usize), Fault> {
    let bytes = text.as_bytes();
    let mut at = start + 1;
    let mut plain = at;
    let mut owned: Option<String> = None;
    let mut lone_surrogate = false;
    loop {
        match bytes.get(at) {
            Some(b'"') => {
                let rest = &text[plain..at];
                let text = match owned {
                    None => Cow::Borrowed(rest),
                    Some(owned) => Cow::Owned(owned + rest),
                };
                return Ok((Text { text, lone_surrogate }, at + 1));
            }
            Some(b'\\') => {
                let owned = owned.get_or_insert_default();
                owned.push_str(&text[plain..at]);
                let (c, end) = escape(bytes, at)?;
                owned.push(c.unwrap_or(char::REPLACEMENT_CHARACTER));
                lone_surrogate |= c.is_none();
                at = end;
                plain = end;
            }
            Some(0..0x20) => return Err(Fault { at, expected: "no control character in a string" }),
            Some(_) => at += 1,
            None => return Err(Fault { at, expected: "a closing quote" }),
        }
    }
}

/// Reads the escape whose backslash is at `at`: the character (none for half a pair), and the byte after it.
fn escape(bytes: &[u8], at: usize) -> Result<(Option<char>, usize), Fault> {
    let c = match bytes.get(at + 1) {
        Some(b'"') => '"',
        Some(b'\\') => '\\',
        Some(b'/') => '/',
        Some(b'b') => '\u{8}',
        Some(b'f') => '\u{c}',
        Some(b'n') => '\n',
        Some(b'r') => '\r',
        Some(b't') => '\t',
        Some(b'u') => {
            let first = unit(bytes, at + 2)?;
            if let Some(c) = char::from_u32(first) {
                return Ok((Some(c), at + 6));
            }
            // Half of a pair: the other half must follow, else only this half is stepped over.
            if (0xd800..0xdc00).contains(&first) && bytes.get(at + 6..at + 8) == Some(b"\\u") {
                let second = unit(bytes, at + 8)?;
                if (0xdc00..0xe000).contains(&second) {
                    let scalar = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                    return Ok((char::from_u32(scalar), at + 12));
                }
            }
            return Ok((None, at + 6));
        }
        _ => return Err(Fault { at: at + 1, expected: "one of `\"\\/bfnrtu` after `\\`" }),
    };
    Ok((Some(c), at + 2))
}

/// Reads four hex digits.
fn unit(bytes: &[u8], at: usize) -> Result<u32, Fault> {
    (at..at + 4).try_fold(0, |unit, at| {
        let digit = bytes.get(at).and_then(|b| char::from(*b).to_digit(16));
        digit.map(|digit| unit << 4 | digit).ok_or(Fault { at, expected: "four hex digits after `\\u`" })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_the_nearest_double() {
        for (literal, value) in [
            ("0", 0.0),
            ("-0", -0.0),
            ("-12", -12.0),
            ("9007199254740991", 9_007_199_254_740_991.0),
            ("0.1", 0.1),
            ("-0.0", -0.0),
            ("1e+21", 1e21),
            ("333333333.3333333", 333_333_333.333_333_3),
            ("9007199254740993.0", 9_007_199_254_740_992.0),
        ] {
            let number = number(literal.as_bytes(), 0).unwrap_or_else(|_| panic!("{literal}"));
            assert_eq!(number.end, literal.len());
            let read: f64 = number.value.read(literal).unwrap();
            assert_eq!(read.to_bits(), f64::to_bits(value), "{literal}");
        }
    }

    #[test]
    fn escapes_become_their_characters() {
        let (read, end) =
            string(r#""a\"\\\/\b\f\n\r\t\u00e9\ud83d\ude80z" "#, 0).unwrap_or_else(|_| panic!());
        assert_eq!(read.text, "a\"\\/\u{8}\u{c}\n\r\té🚀z");
        assert_eq!((read.lone_surrogate, end), (false, 38));
    }

    #[test]
    fn half_a_pair_is_told_and_only_it_is_lost() {
        let (read, _) = string(r#""\ud83d\ud83d\ude80""#, 0).unwrap_or_else(|_| panic!());
        assert_eq!((read.text.as_ref(), read.lone_surrogate), ("\u{fffd}🚀", true));
    }
}
