//! One line of the table of routes: its name, and what carries it out, which says what it takes and gives.

use axum::extract::{Request, State};
use axum::routing::{MethodRouter, on};
use http::Method;
use schemars::JsonSchema;

use super::arguments::{Asked, Content, Given, Handler, HeaderNote, Takes, describe};
use crate::control::Control;

/// One line of the table.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) method: Method,
    /// As the router writes it: `{name}` is one segment, `{*name}` the rest of the path.
    pub(crate) path: &'static str,
    /// The operation's id in the document.
    pub(crate) id: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) takes: Takes,
    /// Its successes.
    pub(crate) given: Vec<Given>,
    handler: MethodRouter<Control>,
}

macro_rules! method {
    ($(#[$doc:meta])* $name:ident, $method:expr) => {
        $(#[$doc])*
        pub(super) fn $name<T: 'static>(path: &'static str, id: &'static str, summary: &'static str, handler: impl Handler<T>) -> Route {
            Route::new($method, path, id, summary, handler)
        }
    };
}

method!(
    /// A route that reads.
    get, Method::GET
);
method!(
    /// A route that makes something, or has it done.
    post, Method::POST
);
method!(
    /// A route that puts something where it says.
    put, Method::PUT
);
method!(
    /// A route that changes a part.
    patch, Method::PATCH
);
method!(
    /// A route that takes something away.
    delete, Method::DELETE
);

impl Route {
    fn new<T: 'static, H: Handler<T>>(
        method: Method,
        path: &'static str,
        id: &'static str,
        summary: &'static str,
        handler: H,
    ) -> Self {
        let (mut takes, mut given) = (Takes::nothing(), Vec::new());
        H::declare(&mut takes, &mut given);
        let (who, has_query) = (takes.who, takes.query.is_some() || takes.any_query);
        let run = move |State(control): State<Control>, request: Request| async move {
            let asked = Asked::new(control, path, request);
            asked.check(who, has_query)?;
            handler.handle(asked).await
        };
        // INVARIANT: the constructors above use methods that the router knows.
        let filter = method.clone().try_into().expect("a method that the router knows");
        Self { method, path, id, summary, takes, given, handler: on(filter, run) }
    }

    /// Takes bytes of one of these media types.
    pub(super) fn takes_bytes(mut self, kinds: &'static [&'static str]) -> Self {
        self.takes.body = Some(Content::Bytes(kinds));
        self
    }

    /// Answers so, where its handler's type does not say it.
    pub(super) fn gives(mut self, status: u16, content: Content) -> Self {
        self.given.push(Given { status, content: Some(content), headers: &[] });
        self
    }

    /// Answers with JSON.
    pub(super) fn gives_json<T: JsonSchema>(self, status: u16) -> Self {
        self.gives(status, Content::Json(describe::<T>))
    }

    /// Answers 200 with events, each a `T`.
    pub(super) fn gives_events<T: JsonSchema>(self) -> Self {
        self.gives(200, Content::Events(describe::<T>))
    }

    /// Answers 200 with lines, each a `T`.
    pub(super) fn gives_lines<T: JsonSchema>(self) -> Self {
        self.gives(200, Content::Lines(describe::<T>))
    }

    /// Answers with bytes of one of these media types.
    pub(super) fn gives_bytes(self, status: u16, kinds: &'static [&'static str]) -> Self {
        self.gives(status, Content::Bytes(kinds))
    }

    /// Answers without content.
    pub(super) fn gives_nothing(mut self, status: u16) -> Self {
        self.given.push(Given { status, content: None, headers: &[] });
        self
    }

    /// Successes carry these headers.
    pub(super) fn sends(mut self, headers: &'static [HeaderNote]) -> Self {
        self.given.iter_mut().for_each(|given| given.headers = headers);
        self
    }

    /// Statuses that it may answer beside those that come with what it takes.
    pub(super) fn errors(mut self, statuses: &[u16]) -> Self {
        self.takes.errors.extend(statuses);
        self
    }

    /// What the router holds for it: the handler, behind the questions whether the caller is of the right kind and the query
    /// is one that it takes.
    pub(super) fn handler(self) -> MethodRouter<Control> {
        self.handler
    }
}
