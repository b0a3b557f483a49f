//! Bytes → tree, with every fault that a common JSON parser hides.
//!
//! Owns the only reading of a card's bytes. `serde_json` keeps the last of two equal keys, hands large
//! integers on as floats and stops at the first lone surrogate; each of these makes two readers of one
//! document see two cards. So this scanner reads the bytes once, notes each such fault with its pointer and
//! goes on, and builds the tree as it goes; only a syntax error ends it.
//! It keeps its own stack (no input can exhaust the thread's), runs in time linear in the input, and never
//! builds deeper than the limit: what lies below is checked, and dropped.

use std::borrow::Cow;
use std::collections::HashSet;

use super::finding::{Code, Findings, shown};
use super::literal;
use super::node::{Members, Node, Step};

/// The deepest tree that is ever built, whatever the settings say: later stages recurse over it, and whoever reads
/// the card may stop at 128 levels, as `serde_json` does, of which an answer around the card takes a few.
pub(super) const DEEPEST: usize = 120;

/// Up to this many members an object's keys are compared pair by pair, above it through a set.
const FEW: usize = 12;

/// Reads one JSON text. `None` after a syntax error.
pub(super) fn scan<'a>(bytes: &'a [u8], max_depth: usize, findings: &mut Findings) -> Option<Node<'a>> {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let at = error.valid_up_to();
            findings.refuse(Code::NotUtf8, String::new, || {
                format!("byte {at} is not UTF-8; a card is UTF-8 without a byte order mark")
            });
            return None;
        }
    };
    let mut scanner =
        Scanner { text, bytes, at: 0, stack: Vec::new(), max_depth: max_depth.min(DEEPEST), findings };
    match scanner.document() {
        Ok(root) => Some(root),
        Err(Fault { at, expected }) => {
            findings.refuse(Code::Syntax, String::new, || {
                format!("not JSON at byte {at}: expected {expected}, found {}", found(text, at))
            });
            None
        }
    }
}

fn found(text: &str, at: usize) -> String {
    match text.get(at..).and_then(|rest| rest.chars().next()) {
        Some(c) => format!("`{}`", c.escape_default()),
        None => "the end".to_owned(),
    }
}

/// A syntax error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) at: usize,
    pub(super) expected: &'static str,
}

/// A container that is not yet closed.
enum Open<'a> {
    Array(Vec<Node<'a>>),
    Object { members: Members<'a>, key: Cow<'a, str> },
}

struct Scanner<'a, 'f> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    stack: Vec<Open<'a>>,
    max_depth: usize,
    findings: &'f mut Findings,
}

impl<'a> Scanner<'a, '_> {
    fn document(&mut self) -> Result<Node<'a>, Fault> {
        loop {
            self.blank();
            let Some(value) = self.value()? else { continue };
            if let Some(root) = self.attach(value)? {
                self.blank();
                return match self.peek() {
                    None => Ok(root),
                    Some(_) => Err(self.fault("the end of the document")),
                };
            }
        }
    }

    /// Reads a value, or opens a container that is not empty (`None`).
    fn value(&mut self) -> Result<Option<Node<'a>>, Fault> {
        let node = match self.peek() {
            Some(b'"') => {
                let string = self.string()?;
                if string.lone_surrogate {
                    self.refuse(Code::LoneSurrogate, None, || {
                        "half of a surrogate pair in a string; a `\\u` escape must name a character"
                            .to_owned()
                    });
                }
                Node::Text(string.text)
            }
            Some(b'{') => {
                self.open();
                if self.closes(b'}') {
                    Node::Object(Vec::new())
                } else {
                    let key = self.key(self.stack.len())?;
                    self.stack.push(Open::Object { members: Vec::new(), key });
                    return Ok(None);
                }
            }
            Some(b'[') => {
                self.open();
                if self.closes(b']') {
                    Node::Array(Vec::new())
                } else {
                    self.stack.push(Open::Array(Vec::new()));
                    return Ok(None);
                }
            }
            Some(b'-' | b'0'..=b'9') => self.number()?,
            Some(b't') => self.word("true", Node::Bool(true))?,
            Some(b'f') => self.word("false", Node::Bool(false))?,
            Some(b'n') => self.word("null", Node::Null)?,
            _ => return Err(self.fault("a value")),
        };
        Ok(Some(node))
    }

    /// Gives a finished value to the container around it, and closes what ends with it. The root comes back.
    fn attach(&mut self, mut value: Node<'a>) -> Result<Option<Node<'a>>, Fault> {
        loop {
            let Some(open) = self.stack.last_mut() else { return Ok(Some(value)) };
            match open {
                Open::Array(items) => items.push(value),
                Open::Object { members, key } => members.push((std::mem::take(key), value)),
            }
            self.blank();
            let in_array = matches!(self.stack.last(), Some(Open::Array(_)));
            value = match (self.peek(), in_array) {
                (Some(b','), true) => {
                    self.at += 1;
                    return Ok(None);
                }
                (Some(b','), false) => {
                    self.at += 1;
                    self.blank();
                    let next = self.key(self.stack.len() - 1)?;
                    if let Some(Open::Object { key, .. }) = self.stack.last_mut() {
                        *key = next;
                    }
                    return Ok(None);
                }
                (Some(b']'), true) | (Some(b'}'), false) => self.close(),
                (_, true) => return Err(self.fault("`,` or `]`")),
                (_, false) => return Err(self.fault("`,` or `}`")),
            };
        }
    }

    /// Steps over an opening bracket.
    fn open(&mut self) {
        if self.stack.len() == self.max_depth {
            let most = self.max_depth;
            self.refuse(Code::TooDeep, None, || format!("nested deeper than the {most} levels allowed"));
        }
        self.at += 1;
        self.blank();
    }

    /// Steps over a closing bracket and takes what it closes off the stack.
    fn close(&mut self) -> Node<'a> {
        self.at += 1;
        let too_deep = self.stack.len() > self.max_depth;
        match self.stack.pop() {
            Some(Open::Object { members, .. }) => {
                self.repeated_keys(&members);
                if too_deep { Node::Null } else { Node::Object(members) }
            }
            Some(Open::Array(items)) if !too_deep => Node::Array(items),
            _ => Node::Null,
        }
    }

    /// Steps over `bracket` if it comes next: the container is empty.
    fn closes(&mut self, bracket: u8) -> bool {
        let closes = self.peek() == Some(bracket);
        self.at += usize::from(closes);
        closes
    }

    /// Reads a key and its colon; its object lies in `above` others.
    fn key(&mut self, above: usize) -> Result<Cow<'a, str>, Fault> {
        if self.peek() != Some(b'"') {
            return Err(self.fault("a member's name in quotes"));
        }
        let string = self.string()?;
        self.blank();
        if self.peek() != Some(b':') {
            return Err(self.fault("`:`"));
        }
        self.at += 1;
        if string.lone_surrogate {
            self.refuse(Code::LoneSurrogate, Some((above, &string.text)), || {
                "half of a surrogate pair in a name; a `\\u` escape must name a character".to_owned()
            });
        }
        Ok(string.text)
    }

    /// Notes each key that comes more than once in an object just taken off the stack.
    fn repeated_keys(&mut self, members: &Members<'a>) {
        let mut note = |key: &str| {
            let above = self.stack.len();
            self.refuse(Code::DuplicateKey, Some((above, key)), || {
                format!("the name {} comes more than once in this object; once is allowed", shown(key))
            });
        };
        if members.len() <= FEW {
            for (n, (key, _)) in members.iter().enumerate() {
                let earlier = members[..n].iter().filter(|(other, _)| other == key).count();
                if earlier == 1 {
                    note(key);
                }
            }
            return;
        }
        let mut seen = HashSet::with_capacity(members.len());
        let mut noted = HashSet::new();
        for (key, _) in members {
            if !seen.insert(key.as_ref()) && noted.insert(key.as_ref()) {
                note(key);
            }
        }
    }

    fn number(&mut self) -> Result<Node<'a>, Fault> {
        let number = literal::number(self.bytes, self.at)?;
        let literal = &self.text[self.at..number.end];
        self.at = number.end;
        match number.value.read(literal) {
            Ok(value) => Ok(Node::Number(value)),
            Err((code, allowed)) => {
                self.refuse(code, None, || format!("the number {} {allowed}", shown(literal)));
                Ok(Node::Null)
            }
        }
    }

    fn string(&mut self) -> Result<literal::Text<'a>, Fault> {
        let (string, end) = literal::string(self.text, self.at)?;
        self.at = end;
        Ok(string)
    }

    fn word(&mut self, word: &'static str, node: Node<'a>) -> Result<Node<'a>, Fault> {
        if !self.bytes[self.at..].starts_with(word.as_bytes()) {
            return Err(self.fault("a value"));
        }
        self.at += word.len();
        Ok(node)
    }

    fn blank(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.peek() {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    const fn fault(&self, expected: &'static str) -> Fault {
        Fault { at: self.at, expected }
    }

    /// Notes a violation at the value being read, or at the `key` of the object `above` levels down.
    fn refuse(&mut self, code: Code, at: Option<(usize, &str)>, message: impl FnOnce() -> String) {
        let (levels, key) = match at {
            Some((levels, key)) => (levels, Some(Step::Key(key))),
            None => (self.stack.len(), None),
        };
        let open = &self.stack[..levels];
        let pointer = || {
            let steps = open.iter().map(|open| match open {
                Open::Array(items) => Step::Index(items.len()),
                Open::Object { key, .. } => Step::Key(key),
            });
            steps.chain(key).map(|step| step.to_string()).collect()
        };
        self.findings.refuse(code, pointer, message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(text: &str) -> Vec<(Code, String)> {
        let mut findings = Findings::default();
        scan(text.as_bytes(), 64, &mut findings);
        findings.violations().iter().map(|v| (v.code, v.pointer.clone())).collect()
    }

    #[test]
    fn each_hidden_fault_is_found_where_it_lies() {
        for (text, code, pointer) in [
            (r#"{"a":1,"a":2}"#, Code::DuplicateKey, "/a"),
            (r#"{"a":{"b":[{},{"c":1,"\u0063":2}]}}"#, Code::DuplicateKey, "/a/b/1/c"),
            (r#"{"a":1,"a":2,"a":3}"#, Code::DuplicateKey, "/a"),
            (r#"[9007199254740992]"#, Code::IntegerOutOfRange, "/0"),
            (r#"[0,-9007199254740993]"#, Code::IntegerOutOfRange, "/1"),
            (r#"{"x/y":123456789012345678901234567890}"#, Code::IntegerOutOfRange, "/x~1y"),
            (r#"[1e400]"#, Code::NumberOverflow, "/0"),
            (r#"[-1e400]"#, Code::NumberOverflow, "/0"),
            (r#"[1e-400]"#, Code::NumberUnderflow, "/0"),
            (r#"["\ud800"]"#, Code::LoneSurrogate, "/0"),
            (r#"["\udc00\ud800"]"#, Code::LoneSurrogate, "/0"),
            (r#"["\ud800\u0041"]"#, Code::LoneSurrogate, "/0"),
            (r#"{"\ud800":1}"#, Code::LoneSurrogate, "/\u{fffd}"),
            (r#"{"a":[{"b":0,"\udfff":1}]}"#, Code::LoneSurrogate, "/a/0/\u{fffd}"),
        ] {
            assert_eq!(faults(text), [(code, pointer.to_owned())], "{text}");
        }
    }

    #[test]
    fn what_is_fine_is_not_refused() {
        for text in [
            r#"{"a":{"a":{"a":1}},"A":1}"#,
            r#"[9007199254740991,-9007199254740991,0.1,-0,-0.0,1E+2,0e-999,5e-324]"#,
            r#"["\ud83d\ude80","\u0000","\/"]"#,
            " \t\r\n[ ] \n",
            "[]",
            "{}",
            "0",
        ] {
            assert_eq!(faults(text), [], "{text}");
        }
    }

    #[test]
    fn all_faults_are_collected_and_a_syntax_error_ends_the_list() {
        let found: Vec<_> = faults(r#"{"a":1e999,"b":["\ud800",{"c":0,"c":0}],"d":nul"#);
        let codes: Vec<_> = found.iter().map(|(code, _)| code.as_str()).collect();
        assert_eq!(codes, ["number_overflow", "lone_surrogate", "duplicate_key", "syntax"]);
    }

    #[test]
    fn a_syntax_error_names_its_byte() {
        for (text, at) in [
            ("", 0),
            ("\u{feff}{}", 0),
            ("{} x", 3),
            ("[1,]", 3),
            ("{\"a\":1,}", 7),
            ("{\"a\" 1}", 5),
            ("[01]", 2),
            ("[1.]", 3),
            ("[.5]", 1),
            ("[1e]", 3),
            ("[-]", 2),
            ("[+1]", 1),
            ("NaN", 0),
            ("[Infinity]", 1),
            ("['a']", 1),
            ("[\"a\nb\"]", 3),
            ("[\"\\x\"]", 3),
            ("[\"\\u12g4\"]", 6),
            ("[\"abc", 5),
            ("[1 2]", 3),
            ("[", 1),
            ("{\"a\":", 5),
            ("[1}", 2),
            ("tru", 0),
            ("// c\n{}", 0),
        ] {
            let mut findings = Findings::default();
            assert_eq!(scan(text.as_bytes(), 64, &mut findings), None, "{text}");
            let [fault] = findings.violations() else { panic!("{text}: {findings:?}") };
            assert_eq!(fault.code, Code::Syntax, "{text}");
            assert!(
                fault.message.starts_with(&format!("not JSON at byte {at}: ")),
                "{text}: {}",
                fault.message
            );
        }
    }

    #[test]
    fn depth_is_counted_in_containers_and_what_lies_below_is_still_checked() {
        let nested = |levels: usize| format!("{}1e999{}", "[".repeat(levels), "]".repeat(levels));
        assert_eq!(faults(&nested(64)).len(), 1);
        let below = faults(&nested(65));
        assert_eq!(below[0], (Code::TooDeep, "/0".repeat(64)));
        assert_eq!(below[1].0, Code::NumberOverflow);
        let mut findings = Findings::default();
        let text = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
        assert!(scan(text.as_bytes(), usize::MAX, &mut findings).is_some());
        assert_eq!(findings.violations()[0].pointer.len(), DEEPEST * 2);
    }

    #[test]
    fn an_object_of_many_keys_is_checked_in_linear_time() {
        let members: Vec<_> = (0..40_000).map(|n| format!("\"k{}\":0", n % 39_999)).collect();
        assert_eq!(faults(&format!("{{{}}}", members.join(","))), [(Code::DuplicateKey, "/k0".to_owned())]);
    }
}
