//! What stock git needs of every answer, and brings instead of a bearer token: only on `/git/…`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderValue, Request, Response, StatusCode, header};

use super::git_routes::PREFIX;

/// How the client of a request has to be answered.
#[derive(Debug, Clone, Copy)]
pub(super) struct GitClient {
    /// It asks for a repository.
    asks: bool,
    /// It is git itself, which shows text and no JSON.
    reads_text: bool,
}

impl GitClient {
    pub(super) fn of<B>(request: &Request<B>) -> Self {
        let asks = request.uri().path().starts_with(PREFIX);
        let agent = request.headers().get(header::USER_AGENT).map_or(&b""[..], HeaderValue::as_bytes);
        Self { asks, reads_text: asks && agent.starts_with(b"git/") }
    }

    /// Whether errors are told as text.
    pub(super) fn reads_text(self) -> bool {
        self.reads_text
    }

    /// The password of `Basic` is the token, whatever the user's name.
    pub(super) fn translate<B>(self, request: &mut Request<B>) {
        if !self.asks {
            return;
        }
        let mut values = request.headers().get_all(header::AUTHORIZATION).iter();
        let (Some(value), None) = (values.next(), values.next()) else { return };
        if let Some(value) = bearer(value) {
            request.headers_mut().insert(header::AUTHORIZATION, value);
        }
    }

    /// Git asks its user for a credential when it is told so in this one way.
    pub(super) fn finish<B>(self, response: &mut Response<B>) {
        if self.asks && response.status() == StatusCode::UNAUTHORIZED {
            let basic = HeaderValue::from_static("Basic realm=\"bailey\"");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, basic);
        }
    }
}

fn bearer(value: &HeaderValue) -> Option<HeaderValue> {
    let (scheme, encoded) = value.to_str().ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let pair = String::from_utf8(STANDARD.decode(encoded.trim()).ok()?).ok()?;
    let (_user, password) = pair.split_once(':')?;
    let mut value = HeaderValue::from_str(&format!("Bearer {password}")).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(path: &str, authorization: &str) -> Option<String> {
        let mut request = Request::get(path).header(header::AUTHORIZATION, authorization).body(()).unwrap();
        GitClient::of(&request).translate(&mut request);
        request.headers().get(header::AUTHORIZATION).map(|value| value.to_str().unwrap().to_owned())
    }

    #[test]
    fn a_password_is_a_token_on_git_routes_alone() {
        let basic = format!("Basic {}", STANDARD.encode("anyone:tok:en"));
        assert_eq!(asked("/git/acme.git/info/refs", &basic).unwrap(), "Bearer tok:en");
        assert_eq!(asked("/v1/runs", &basic).unwrap(), basic);
        for odd in ["Basic", "Basic !!!", "Bearer x", &format!("Basic {}", STANDARD.encode("no-colon"))] {
            assert_eq!(asked("/git/acme.git/info/refs", odd).unwrap(), odd);
        }
    }

    #[test]
    fn git_is_asked_for_a_password_and_nobody_else() {
        for (path, expected) in [("/git/x.git/info/refs", Some("Basic realm=\"bailey\"")), ("/v1/runs", None)] {
            let request = Request::get(path).body(()).unwrap();
            let mut response = Response::builder().status(401).body(()).unwrap();
            GitClient::of(&request).finish(&mut response);
            let told = response.headers().get(header::WWW_AUTHENTICATE).map(|value| value.to_str().unwrap());
            assert_eq!(told, expected);
        }
    }
}
