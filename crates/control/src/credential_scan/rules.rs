//! The rules: what credentials of known kinds look like, as their issuers publish it. To add one, add a line here and a
//! vector to the tests.

use std::sync::LazyLock;

use regex::bytes::{Regex, RegexBuilder};

/// Bytes that a rule may look at from where it begins.
pub(super) const MAX_WINDOW: usize = 8 * 1024;
/// Bytes of the longest literal beginning.
pub(super) const MAX_TRIGGER: usize = 32;

/// One kind of credential.
#[derive(Debug)]
pub struct Rule {
    /// Stable, for policies and notices.
    pub name: &'static str,
    /// How it begins, literally.
    begins: &'static [&'static str],
    /// The whole, from its beginning. What group 1 holds is what has to look random.
    pattern: &'static str,
    /// Bits per byte that group 1 has at least.
    entropy: f64,
    /// Whether it may begin within a word.
    within: bool,
}

const fn rule(name: &'static str, begins: &'static [&'static str], pattern: &'static str, entropy: f64) -> Rule {
    Rule { name, begins, pattern, entropy, within: false }
}

/// Where a token of these characters ends.
macro_rules! ends {
    ($pattern:literal) => {
        concat!($pattern, r"(?:[^A-Za-z0-9_-]|\z)")
    };
}

/// Every rule, by name.
pub const RULES: &[Rule] = &[
    rule("age-secret-key", &["AGE-SECRET-KEY-1"], ends!(r"AGE-SECRET-KEY-1([A-Z0-9]{58})"), 3.0),
    rule("anthropic-api-key", &["sk-ant-"], ends!(r"sk-ant-(?:api|admin|oat|ort|sid)\d\d-([A-Za-z0-9_-]{80,})"), 3.5),
    rule("aws-access-key-id", &["AKIA", "ASIA"], ends!(r"A[KS]IA([A-Z2-7]{16})"), 3.0),
    rule(
        "aws-secret-access-key",
        &["aws_secret_access_key", "AWS_SECRET_ACCESS_KEY", "SecretAccessKey", "secretAccessKey"],
        r#"[A-Za-z_]{15,21}["']?\s{0,4}(?:=>|[=:,])\s{0,4}["']?([A-Za-z0-9/+]{40})(?:[^A-Za-z0-9/+=]|\z)"#,
        4.0,
    ),
    rule("azure-storage-key", &["AccountKey="], r"AccountKey=([A-Za-z0-9/+]{86}==)", 4.0),
    rule("bailey-api-key", &["e2b_"], ends!(r"e2b_([0-9a-f]{40})"), 3.0),
    rule("databricks-token", &["dapi"], ends!(r"dapi([0-9a-f]{32}(?:-\d)?)"), 3.0),
    rule("digitalocean-token", &["dop_v1_", "doo_v1_"], ends!(r"do[op]_v1_([0-9a-f]{64})"), 3.0),
    rule("docker-token", &["dckr_pat_"], ends!(r"dckr_pat_([A-Za-z0-9_-]{27,56})"), 3.5),
    rule("github-fine-grained-token", &["github_pat_"], ends!(r"github_pat_([A-Za-z0-9]{22}_[A-Za-z0-9]{59})"), 3.5),
    rule("github-token", &["ghp_", "gho_", "ghu_", "ghs_", "ghr_"], ends!(r"gh[opsur]_([A-Za-z0-9]{36,251})"), 3.5),
    rule(
        "gitlab-token",
        &["glpat-", "gldt-", "glrt-", "glptt-", "glcbt-"],
        ends!(r"gl(?:pat|dt|rt|ptt|cbt)-([A-Za-z0-9_-]{20,100})"),
        3.0,
    ),
    rule("google-api-key", &["AIza"], ends!(r"AIza([A-Za-z0-9_-]{35})"), 3.5),
    rule("google-oauth-secret", &["GOCSPX-"], ends!(r"GOCSPX-([A-Za-z0-9_-]{28})"), 3.0),
    rule("grafana-token", &["glsa_"], ends!(r"glsa_([A-Za-z0-9]{32}_[0-9a-fA-F]{8})"), 3.5),
    rule("huggingface-token", &["hf_"], ends!(r"hf_([A-Za-z0-9]{34,40})"), 3.5),
    rule("json-web-token", &["eyJ"], ends!(r"eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.([A-Za-z0-9_-]{20,})"), 3.5),
    rule("linear-api-key", &["lin_api_"], ends!(r"lin_api_([A-Za-z0-9]{40})"), 3.5),
    rule("npm-token", &["npm_"], ends!(r"npm_([A-Za-z0-9]{36})"), 3.5),
    rule(
        "openai-api-key",
        &["sk-"],
        ends!(r"sk-((?:proj|svcacct|admin|None)-[A-Za-z0-9_-]{40,}|[A-Za-z0-9]{20}T3BlbkFJ[A-Za-z0-9]{20})"),
        3.5,
    ),
    Rule {
        within: true,
        ..rule(
            "private-key",
            &["-----BEGIN "],
            r"-----BEGIN (?:[A-Z0-9]{2,12} ){0,2}PRIVATE KEY(?: BLOCK)?-----(?:\r?\n|\\r|\\n)[^-]{16}",
            0.0,
        )
    },
    rule("pypi-token", &["pypi-AgE"], ends!(r"pypi-AgE(?:IcHlwaS5vcmc|NdGVzdC5weXBpLm9yZ)([A-Za-z0-9_-]{50,})"), 3.5),
    rule("sendgrid-api-key", &["SG."], ends!(r"SG\.([A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43})"), 3.5),
    rule(
        "shopify-token",
        &["shpat_", "shpca_", "shppa_", "shpss_"],
        ends!(r"shp(?:at|ca|pa|ss)_([0-9a-fA-F]{32})"),
        3.0,
    ),
    rule(
        "slack-token",
        &["xoxb-", "xoxp-", "xoxa-", "xoxr-", "xoxs-"],
        ends!(r"xox[abprs]-([0-9]{8,}-[0-9A-Za-z-]{16,})"),
        3.0,
    ),
    rule("slack-app-token", &["xapp-"], ends!(r"xapp-\d-([A-Z0-9]{8,14}-\d{8,15}-[0-9a-f]{64})"), 3.0),
    Rule {
        within: true,
        ..rule(
            "slack-webhook",
            &["hooks.slack.com/"],
            ends!(r"hooks\.slack\.com/(?:services|workflows)/(T[A-Z0-9]{8,12}/[A-Z0-9]{8,12}/[A-Za-z0-9]{20,40})"),
            3.0,
        )
    },
    rule("stripe-key", &["sk_live_", "rk_live_"], ends!(r"[rs]k_live_([A-Za-z0-9]{20,250})"), 3.0),
    rule("stripe-webhook-secret", &["whsec_"], ends!(r"whsec_([A-Za-z0-9+/]{32,})=?"), 3.5),
    rule("twilio-api-key", &["SK"], ends!(r"SK([0-9a-f]{32})"), 3.0),
    Rule {
        within: true,
        ..rule("url-password", &["://"], r#"://[^\s:/@"'<>{}$*]{1,64}:([^\s:/@"'<>{}$*]{6,128})@[A-Za-z0-9\[]"#, 2.5)
    },
    rule("vault-token", &["hvs.", "hvb."], ends!(r"hv[bs]\.([A-Za-z0-9_-]{24,})"), 3.5),
];

/// Words that only a placeholder holds, in lower case.
const PLACEHOLDERS: [&[u8]; 9] =
    [b"example", b"placeholder", b"password", b"changeme", b"xxxxxx", b"your", b"redacted", b"dummy", b"12345678"];

impl Rule {
    pub(super) fn begins_with(&self, trigger: &[u8]) -> bool {
        self.begins.iter().any(|begins| begins.as_bytes() == trigger)
    }

    /// Whether `bytes` begin with one. `before` is the byte before them.
    pub(super) fn matches(&self, before: Option<u8>, bytes: &[u8]) -> bool {
        if !self.within && before.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-') {
            return false;
        }
        let window = bytes.get(..MAX_WINDOW).unwrap_or(bytes);
        let Some(found) = compiled(self).and_then(|pattern| pattern.captures(window)) else { return false };
        let Some(random) = found.get(1) else { return true };
        let random = random.as_bytes();
        entropy(random) >= self.entropy && !is_placeholder(random)
    }
}

/// Bits per byte.
fn entropy(bytes: &[u8]) -> f64 {
    let mut counts = [0_u32; 256];
    for byte in bytes {
        if let Some(count) = counts.get_mut(usize::from(*byte)) {
            *count += 1;
        }
    }
    let total = f64::from(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
    let share = |count: u32| f64::from(count) / total;
    counts.into_iter().filter(|count| *count > 0).map(|count| -share(count) * share(count).log2()).sum()
}

fn is_placeholder(bytes: &[u8]) -> bool {
    let lower = bytes.to_ascii_lowercase();
    PLACEHOLDERS.iter().any(|word| lower.windows(word.len()).any(|window| window == *word))
}

/// Finds every literal beginning, the longest first where one begins another.
pub(super) fn triggers() -> &'static Regex {
    static TRIGGERS: LazyLock<Regex> = LazyLock::new(|| {
        let mut all: Vec<&str> = RULES.iter().flat_map(|rule| rule.begins).copied().collect();
        all.sort_unstable_by_key(|text| std::cmp::Reverse(text.len()));
        let all: Vec<String> = all.into_iter().map(regex::escape).collect();
        compile(&all.join("|"))
    });
    &TRIGGERS
}

fn compiled(rule: &Rule) -> Option<&'static Regex> {
    static PATTERNS: LazyLock<Vec<(&str, Regex)>> =
        LazyLock::new(|| RULES.iter().map(|rule| (rule.name, compile(&format!(r"\A(?:{})", rule.pattern)))).collect());
    PATTERNS.iter().find(|(name, _)| *name == rule.name).map(|(_, pattern)| pattern)
}

fn compile(pattern: &str) -> Regex {
    let compiled = RegexBuilder::new(pattern).unicode(false).build();
    compiled.expect("INVARIANT: a test compiles every pattern of the table")
}
