//! What a policy's text may be before it is parsed. Cedar's parser, and what walks a parsed policy, recurse as deep as a
//! policy is nested, without a look at the stack: a text of a few kilobytes could end the process. So that is bounded
//! here, by a walk over its tokens that recurses nowhere; and what is let through is parsed on a stack of its own.

use cedar_policy::PolicySet;

use crate::policies::PolicyError;

/// Deepest nesting of brackets and words of one policy.
const MAX_DEPTH: usize = 32;
/// Most operators of one policy: each may be one step deeper for who reads `a && b && c` as a chain.
const MAX_OPERATORS: usize = 256;
/// For how many operators an `if` counts: for what reads it, it is as deep as brackets are.
const IF_COUNTS: usize = 8;
/// Stack on which policies are parsed and read. A step of Cedar's takes some kilobytes, in a debug build some dozens.
const STACK_BYTES: usize = 64 * 1024 * 1024;
/// Bytes of stack that a thread needs to decide by any policies within bounds. With fewer, Cedar may say of a decision that
/// it cannot be made, and it is a denial.
pub const DECISION_STACK_BYTES: usize = 32 * 1024 * 1024;

/// Parses policies that are within bounds.
///
/// # Errors
/// When they are not, or are no policies.
pub(crate) fn parse(file: &str, text: &str) -> Result<PolicySet, PolicyError> {
    check(file, text)?;
    text.parse().map_err(|source| PolicyError::Parse { file: file.to_owned(), source: Box::new(source) })
}

/// Does `work`, which walks policies, on a stack that is large enough for those within bounds.
///
/// # Errors
/// As `work`, or when there is no room for the stack.
pub(crate) fn on_own_stack<T: Send>(work: impl FnOnce() -> Result<T, PolicyError> + Send) -> Result<T, PolicyError> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("policies".to_owned()).stack_size(STACK_BYTES);
        let thread =
            thread.spawn_scoped(scope, work).map_err(|source| PolicyError::Stack { source: Box::new(source) })?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn check(file: &str, text: &str) -> Result<(), PolicyError> {
    let (mut depth, mut operators) = (0_usize, 0_usize);
    for token in Tokens(text.as_bytes()) {
        match token {
            // It may be an index or a call, which are operators.
            Token::Opens => (depth, operators) = (depth + 1, operators + 1),
            Token::Closes => depth = depth.saturating_sub(1),
            Token::Operator(counts) => operators += counts,
            // One at the top ends a policy.
            Token::Ends if depth == 0 => operators = 0,
            Token::Ends | Token::Other => {}
        }
        if depth > MAX_DEPTH || operators > MAX_OPERATORS {
            return Err(PolicyError::TooDeep { file: file.to_owned() });
        }
    }
    Ok(())
}

/// What matters of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    Opens,
    Closes,
    /// What makes an expression of one or two others, or may be taken for that.
    Operator(usize),
    Ends,
    Other,
}

/// The tokens of a text, as Cedar's lexer tells them apart. Of what is no Cedar anything may be made: it does not parse.
struct Tokens<'a>(&'a [u8]);

impl Iterator for Tokens<'_> {
    type Item = Token;

    fn next(&mut self) -> Option<Token> {
        let (first, rest) = self.0.split_first()?;
        let (token, length) = match first {
            b'(' | b'[' | b'{' => (Token::Opens, 1),
            b')' | b']' | b'}' => (Token::Closes, 1),
            b';' => (Token::Ends, 1),
            b'"' => (Token::Other, quoted(rest) + 1),
            b'/' if rest.first() == Some(&b'/') => (Token::Other, line(rest) + 1),
            b'!' | b'-' | b'+' | b'*' | b'.' | b'<' | b'>' | b'/' | b'%' => (Token::Operator(1), 1),
            b'&' | b'|' | b'=' => (Token::Operator(1), if rest.first() == Some(first) { 2 } else { 1 }),
            // A word may follow a number, or a space that is no ASCII, with nothing between.
            byte if byte.is_ascii_digit() => {
                (Token::Other, self.0.iter().take_while(|byte| byte.is_ascii_digit()).count())
            }
            byte if is_word(*byte) => {
                let length = self.0.iter().take_while(|byte| is_word(**byte)).count();
                (word(self.0.get(..length).unwrap_or_default()), length)
            }
            _ => (Token::Other, 1),
        };
        self.0 = self.0.get(length..).unwrap_or_default();
        Some(token)
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn word(word: &[u8]) -> Token {
    match word {
        b"if" => Token::Operator(IF_COUNTS),
        b"then" | b"else" | b"has" | b"like" | b"in" | b"is" | b"when" | b"unless" => Token::Operator(1),
        _ => Token::Other,
    }
}

/// Bytes of a text up to its closing quote, that included.
fn quoted(text: &[u8]) -> usize {
    let mut escaped = false;
    let end = text.iter().position(|byte| {
        let ends = *byte == b'"' && !escaped;
        escaped = *byte == b'\\' && !escaped;
        ends
    });
    end.map_or(text.len(), |end| end + 1)
}

/// Bytes of a comment up to the end of its line.
fn line(text: &[u8]) -> usize {
    text.iter().position(|byte| matches!(byte, b'\n' | b'\r')).unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies::Policies;

    /// Conditions of some kilobytes that are as deep as they can be.
    fn deep() -> Vec<(&'static str, String)> {
        let around = |open: &str, inner: &str, close: &str, times: usize| {
            format!("{}{inner}{}", open.repeat(times), close.repeat(times))
        };
        let chain = |link: &str, times: usize| format!("true{}", link.repeat(times));
        vec![
            ("parentheses", around("(", "true", ")", 7000)),
            ("sets", format!("{}.isEmpty()", around("[", "1", "]", 7000))),
            ("records", format!("{} == 1", around("{a:", "1", "}", 3000))),
            ("ifs", around("if true then ", "true", " else true", 700)),
            ("ifs after other spaces", around("if\u{a0}true\u{a0}then\u{a0}", "1", "\u{a0}else 1", 300)),
            ("ifs in conditions", around("if ", "true", " then true else true", 600)),
            ("nots", around("!", "true", "", 15_000)),
            ("negations", format!("{} == 1", around("-", "1", "", 15_000))),
            ("ands", chain(" && true", 1800)),
            ("ors", chain("||true", 2500)),
            ("sums", format!("1{} == 1", "+1".repeat(7000))),
            ("products", format!("1{} == 1", "*1".repeat(7000))),
            ("attributes", format!("context{}", ".a".repeat(7000))),
            ("indexes", format!("context{}", "[\"a\"]".repeat(3000))),
            ("likes", format!("principal.name{}", " like \"a\"".repeat(1500))),
            ("hases", format!("context{}", " has a".repeat(2500))),
            ("calls", format!("context.time{}", ".toDate()".repeat(1500))),
            ("nested calls", around("[1].contains(", "1", ")", 1000)),
            ("comparisons", chain(" == true", 1800)),
            ("ins", format!("principal{}", " in principal".repeat(1100))),
            ("is", format!("principal{}", " is User".repeat(1700))),
            ("a quote that a comment opens", format!("true // \"\n && {}", around("(", "true", ")", 7000))),
            ("a comment that a quote opens", format!("\"//\" == \"//\" && {}", around("(", "true", ")", 7000))),
            ("an escaped quote", format!("\"\\\\\" == \"\\\"\" && {}", around("(", "true", ")", 7000))),
        ]
    }

    #[test]
    fn what_is_nested_too_deep_is_refused_before_it_is_parsed() {
        // On a stack that the parser would overflow at once, were it asked. An overflow ends the whole test.
        let small = std::thread::Builder::new().stack_size(512 * 1024);
        let refused = small.spawn(|| {
            let base = Policies::new(&[]).unwrap();
            for (name, condition) in deep() {
                let text = format!("forbid (principal, action, resource) when {{ {condition} }};");
                assert!(text.len() <= 16 * 1024, "{name}: {}", text.len());
                let file = || vec![("deep".to_owned(), text.clone())];
                let tenants = base.with_tenant(&file()).unwrap_err();
                assert!(matches!(tenants, PolicyError::TooDeep { .. }), "{name}: {tenants}");
                let operators = Policies::new(&file()).unwrap_err();
                assert!(matches!(operators, PolicyError::TooDeep { .. }), "{name}: {operators}");
            }
        });
        refused.unwrap().join().unwrap();
    }

    #[test]
    fn what_is_within_bounds_decides_on_the_stack_that_is_said_to_be_enough() {
        let small = std::thread::Builder::new().stack_size(DECISION_STACK_BYTES);
        let fits = small.spawn(|| {
            let base = Policies::new(&[]).unwrap();
            for (open, close, times) in [
                ("(", ")", 30),
                ("!", "", 4),
                ("true && ", "", 250),
                (r#"context.credential == "x" || "#, "", 80),
                ("if true then ", " else true", 24),
            ] {
                let condition = format!("{}true{}", open.repeat(times), close.repeat(times));
                let text = format!("forbid (principal, action, resource) when {{ {condition} }};");
                let set = base.with_tenant(&[("deep".to_owned(), text)]).unwrap();
                let ana = crate::Principal::new("acme".parse().unwrap(), "ana".parse().unwrap());
                let denied = set.judge(&ana, 0).list_runs().unwrap_err();
                assert_eq!((denied.policies.as_slice(), denied.broken), (["tenant/deep".to_owned()].as_slice(), false));
            }
        });
        fits.unwrap().join().unwrap();
    }

    #[test]
    fn many_policies_of_one_file_are_no_deep_one() {
        let one = r#"forbid (principal, action, resource) when { context.credential == "x" && true };"#;
        check("many", &one.repeat(1000)).unwrap();
        assert!(check("one", &format!("{};", one.repeat(1000).replace(';', "&"))).is_err());
    }
}
