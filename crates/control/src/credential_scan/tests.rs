use super::*;

/// Letters that look random and are the same each time.
fn noise(alphabet: &str, count: usize, seed: u64) -> String {
    let letters: Vec<char> = alphabet.chars().collect();
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        letters[usize::try_from(state % letters.len() as u64).unwrap()]
    };
    std::iter::repeat_with(next).take(count).collect()
}

const HEX: &str = "0123456789abcdef";
const UPPER: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
const DIGITS: &str = "0123456789";

fn alnum() -> String {
    format!("{DIGITS}ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
}

/// One credential of each kind, put together here so that none lies in the repository.
fn vectors() -> Vec<(&'static str, String)> {
    let any = |count, seed| noise(&alnum(), count, seed);
    let hex = |count, seed| noise(HEX, count, seed);
    let jwt = ["eyJ", &any(20, 1), ".eyJ", &any(60, 2), ".", &any(43, 3)].concat();
    let dashes = "-".repeat(5);
    let begin = |kind: &str| format!("{dashes}BEGIN {kind}PRIVATE KEY{dashes}\n{}\n", any(64, 4));
    vec![
        ("age-secret-key", format!("AGE-SECRET-KEY-1{}", noise(UPPER, 58, 5))),
        ("anthropic-api-key", format!("sk-ant-api03-{}", any(95, 6))),
        ("aws-access-key-id", format!("AKIA{}", noise(UPPER, 16, 7))),
        ("aws-access-key-id", format!("\"ASIA{}\"", noise(UPPER, 16, 8))),
        ("aws-secret-access-key", format!("aws_secret_access_key = {}", any(40, 9))),
        ("aws-secret-access-key", format!("\"SecretAccessKey\": \"{}\"", any(40, 10))),
        ("azure-storage-key", format!("AccountName=a;AccountKey={}==", any(86, 11))),
        ("bailey-api-key", format!("e2b_{}", hex(40, 12))),
        ("databricks-token", format!("dapi{}", hex(32, 13))),
        ("digitalocean-token", format!("dop_v1_{}", hex(64, 14))),
        ("docker-token", format!("dckr_pat_{}", any(27, 15))),
        ("github-fine-grained-token", format!("github_pat_{}_{}", any(22, 16), any(59, 17))),
        ("github-token", format!("ghp_{}", any(36, 18))),
        ("github-token", format!("token=ghs_{}\n", any(36, 19))),
        ("gitlab-token", format!("glpat-{}", any(20, 20))),
        ("google-api-key", format!("key=AIza{}&x", any(35, 21))),
        ("google-oauth-secret", format!("GOCSPX-{}", any(28, 22))),
        ("grafana-token", format!("glsa_{}_{}", any(32, 23), hex(8, 24))),
        ("huggingface-token", format!("hf_{}", any(34, 25))),
        ("json-web-token", format!("Authorization: Bearer {jwt}")),
        ("linear-api-key", format!("lin_api_{}", any(40, 26))),
        ("npm-token", format!("//registry/:_authToken=npm_{}", any(36, 27))),
        ("openai-api-key", format!("sk-proj-{}", any(60, 28))),
        ("openai-api-key", format!("sk-{}T3BlbkFJ{}", any(20, 29), any(20, 30))),
        ("private-key", begin("")),
        ("private-key", begin("RSA ")),
        ("private-key", begin("OPENSSH ").replace('\n', "\\n")),
        ("pypi-token", format!("pypi-AgEIcHlwaS5vcmc{}", any(70, 31))),
        ("sendgrid-api-key", format!("SG.{}.{}", any(22, 32), any(43, 33))),
        ("shopify-token", format!("shpat_{}", hex(32, 34))),
        ("slack-app-token", format!("xapp-1-{}-{}-{}", noise(UPPER, 11, 35), noise(DIGITS, 12, 36), hex(64, 37))),
        ("slack-token", format!("xoxb-{}-{}", noise(DIGITS, 12, 38), any(24, 39))),
        (
            "slack-webhook",
            format!(
                "https://hooks.slack.com/services/T{}/B{}/{}",
                noise(UPPER, 9, 40),
                noise(UPPER, 9, 41),
                any(24, 42)
            ),
        ),
        ("stripe-key", format!("sk_live_{}", any(24, 43))),
        ("stripe-webhook-secret", format!("whsec_{}", any(32, 44))),
        ("twilio-api-key", format!("SK{}", hex(32, 45))),
        ("url-password", format!("postgres://app:{}@db.internal:5432/x", any(16, 46))),
        ("vault-token", format!("hvs.{}", any(90, 47))),
    ]
}

fn names(findings: &[Finding]) -> Vec<&'static str> {
    findings.iter().map(|finding| finding.rule).collect()
}

#[test]
fn each_kind_of_credential_is_found_where_it_is() {
    let mut seen = std::collections::BTreeSet::new();
    for (rule, text) in vectors() {
        assert_eq!(names(&scan(text.as_bytes())), [rule], "{rule} alone");
        let among = format!("some words\n{text}\nmore words");
        let found = scan(among.as_bytes());
        assert_eq!(names(&found), [rule], "{rule} among words");
        assert!(found[0].offset >= 11 && found[0].offset < 11 + text.len() as u64, "{found:?}");
        seen.insert(rule);
    }
    let all: std::collections::BTreeSet<_> = RULES.iter().map(|rule| rule.name).collect();
    assert_eq!(seen, all, "a rule without a vector");
}

#[test]
fn what_only_resembles_a_credential_is_left_alone() {
    let any = noise(&alnum(), 64, 99);
    let innocent = [
        "AKIAIOSFODNN7EXAMPLE".to_owned(),
        format!("ghp_{}", "x".repeat(36)),
        format!("ghp_{}", &any[..20]),
        format!("sk-{}", &any[..48]),
        format!("npm_{}", "0".repeat(36)),
        "a task-runner, a disk-image and a risk-assessment with sk-names-in-kebab-case".to_owned(),
        "https://user:password@example.com/".to_owned(),
        "https://${USER}:${PASSWORD}@host/".to_owned(),
        "https://host:8080/path@v1.2.3".to_owned(),
        "git@github.com:owner/name.git".to_owned(),
        format!("{}BEGIN PUBLIC KEY{}\n{any}", "-".repeat(5), "-".repeat(5)),
        format!("{}BEGIN PRIVATE KEY{} is how a key file starts", "-".repeat(5), "-".repeat(5)),
        format!("eyJ{any}"),
        format!("integrity sha512-{any}{any}=="),
        format!("commit {}", noise(HEX, 40, 100)),
        format!("TASK{}", noise(HEX, 32, 101)),
        "SKU SKIP SKY ASIAN AKIAN hf_hub npm_config_registry glpat-short".to_owned(),
        "aws_secret_access_key = os.environ['AWS_SECRET_ACCESS_KEY']".to_owned(),
    ];
    for text in innocent {
        assert_eq!(scan(text.as_bytes()), [], "{text}");
    }
    // Nothing in this repository's own sources and documents either, beside its vectors.
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    for file in ["../../Cargo.lock", "../../README.md", "src/auth/tests.rs", "src/auth/issuer.rs", "src/control.rs"] {
        let text = std::fs::read(root.join(file)).unwrap();
        assert_eq!(scan(&text), [], "{file}");
    }
}

#[test]
fn where_the_bytes_are_cut_makes_no_difference() {
    // So much that what comes before a credential is looked at by itself.
    let padding = "x y\n".repeat(18_500);
    for (rule, text) in vectors() {
        let whole = format!("{padding}{text}\n");
        let expected = scan(whole.as_bytes());
        assert_eq!(names(&expected), [rule]);
        // Cut within the credential, and in pieces of odd sizes.
        for cut in (padding.len()..padding.len() + text.len()).step_by(5) {
            let mut scanner = Scanner::default();
            let (left, right) = whole.as_bytes().split_at(cut);
            scanner.push(left);
            scanner.push(right);
            assert_eq!(scanner.finish(), expected, "{rule} cut at {cut}");
        }
        for size in [1021, 65_537] {
            let mut scanner = Scanner::default();
            whole.as_bytes().chunks(size).for_each(|piece| scanner.push(piece));
            assert_eq!(scanner.finish(), expected, "{rule} in pieces of {size}");
        }
    }
}

#[test]
fn what_lies_beyond_the_limit_is_not_looked_at_and_memory_stays_flat() {
    let mut scanner = Scanner::default();
    let filler = vec![b'.'; 1 << 20];
    for _ in 0..64 {
        scanner.push(&filler);
        assert!(scanner.buffer.capacity() < 1 << 20);
    }
    assert!(!scanner.is_cut());
    scanner.push(format!("ghp_{}", noise(&alnum(), 36, 18)).as_bytes());
    assert!(scanner.is_cut());
    assert_eq!(scanner.finish(), []);
}

#[test]
fn hostile_bytes_cost_no_more_than_a_few_looks_each() {
    // Each repeats what some rule begins with, so that every rule is asked as often as bytes allow.
    let hostile =
        ["eyJ", "eyJaaaaaaaaaaa.", "://", "://a:b", "-----BEGIN ", "sk-", " sk-", "SK", " SK0", "AKIA ", "xoxb-1"];
    let fair = std::time::Duration::from_secs(if cfg!(debug_assertions) { 20 } else { 2 });
    for text in hostile {
        let bytes = text.repeat((1 << 20) / text.len());
        let start = tokio::time::Instant::now();
        let _found = scan(bytes.as_bytes());
        assert!(start.elapsed() < fair, "{text}: {:?}", start.elapsed());
    }
}

#[test]
fn nothing_that_is_told_holds_what_was_found() {
    for (_, text) in vectors() {
        let told = format!("{:?}", scan(text.as_bytes()));
        assert!(told.len() < 120 && !told.contains(&text), "{told}");
    }
}
