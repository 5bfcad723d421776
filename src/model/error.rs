//! Why something failed, told apart by whose fault it is. A bug is none of these: it is an
//! assertion.
//!
//! - [`Input`]: what the operator wrote is wrong, and stays wrong until it is changed.
//! - [`Peer`]: the other side broke its protocol; the connection ends, or the message is refused.
//! - [`System`]: the system refused; the same may succeed later.
//!
//! Where a function can fail in several of these ways, its error is an [`Error`].

use std::borrow::Cow;
use std::fmt;

/// What the operator wrote is wrong. Boxed: errors are rare, and results of them are many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input(Box<Wrong>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Wrong {
    place: String,
    why: Why,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Why {
    Value { got: String, expected: Cow<'static, str> },
    Other(String),
}

impl Input {
    /// At a place that the caller knows: see [`Input::at`].
    pub fn new(got: impl fmt::Display, expected: impl Into<Cow<'static, str>>) -> Self {
        Self::wrong(&got, expected.into())
    }

    /// A text, shown in quotes.
    pub fn quoted(got: &str, expected: impl Into<Cow<'static, str>>) -> Self {
        Self::wrong(&format_args!("{got:?}"), expected.into())
    }

    fn wrong(got: &dyn fmt::Display, expected: Cow<'static, str>) -> Self {
        Self::because(Why::Value { got: got.to_string(), expected })
    }

    /// Where no single value is wrong.
    pub fn other(why: impl Into<String>) -> Self {
        Self::because(Why::Other(why.into()))
    }

    fn because(why: Why) -> Self {
        Self(Box::new(Wrong { place: String::new(), why }))
    }

    /// The place, or a part of it that encloses the one so far: a file, a key, a flag.
    #[must_use]
    pub fn at(mut self, place: impl fmt::Display) -> Self {
        self.enclose(&place);
        self
    }

    fn enclose(&mut self, outer: &dyn fmt::Display) {
        let inner = std::mem::take(&mut self.0.place);
        self.0.place =
            if inner.is_empty() { outer.to_string() } else { format!("{outer}: {inner}") };
    }
}

/// `place: got X, expected Y`
impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Wrong { place, why } = &*self.0;
        if !place.is_empty() {
            write!(f, "{place}: ")?;
        }
        match why {
            Why::Value { got, expected } if expected.is_empty() => write!(f, "got {got}"),
            Why::Value { got, expected } => write!(f, "got {got}, expected {expected}"),
            Why::Other(why) => f.write_str(why),
        }
    }
}

/// The other side broke its protocol: a text that says how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer(String);

impl Peer {
    /// Says how.
    pub fn new(why: impl Into<String>) -> Self {
        Self(why.into())
    }

    /// `place: why`
    pub fn at(place: impl fmt::Display, why: impl fmt::Display) -> Self {
        Self(format!("{place}: {why}"))
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The system refused: a text with what was tried and its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct System(String);

impl System {
    /// Says what was tried, and the answer.
    pub fn new(why: impl Into<String>) -> Self {
        Self(why.into())
    }

    /// `what: error`
    pub fn at(what: impl fmt::Display, error: impl fmt::Display) -> Self {
        Self(format!("{what}: {error}"))
    }
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<std::io::Error> for System {
    fn from(error: std::io::Error) -> Self {
        Self(error.to_string())
    }
}

/// Any of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The operator is to change something.
    Input(Input),
    /// The other side is at fault.
    Peer(Peer),
    /// To be tried again.
    System(System),
}

impl Error {
    /// The place of the failure, or a part of it that encloses the one so far.
    #[must_use]
    pub fn at(self, place: impl fmt::Display) -> Self {
        match self {
            Self::Input(wrong) => Self::Input(wrong.at(place)),
            Self::Peer(Peer(why)) => Self::Peer(Peer::at(place, why)),
            Self::System(System(why)) => Self::System(System::at(place, why)),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Input(wrong) => wrong.fmt(f),
            Self::Peer(broken) => broken.fmt(f),
            Self::System(refused) => refused.fmt(f),
        }
    }
}

impl From<Input> for Error {
    fn from(wrong: Input) -> Self {
        Self::Input(wrong)
    }
}

impl From<Peer> for Error {
    fn from(broken: Peer) -> Self {
        Self::Peer(broken)
    }
}

impl From<System> for Error {
    fn from(refused: System) -> Self {
        Self::System(refused)
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self::System(error.into())
    }
}

impl std::error::Error for Input {}
impl std::error::Error for Peer {}
impl std::error::Error for System {}
impl std::error::Error for Error {}

/// Why a file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// From 1; 0 if the error has no position in the text.
    pub line: u32,
    /// From 1.
    pub column: u32,
    /// What was got, what was expected.
    pub why: String,
}

impl fmt::Display for Refusal {
    /// Continues a path: `/etc/…/web.yaml` + `:3:7: got …`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, ": {}", self.why),
            line => write!(f, ":{line}:{}: {}", self.column, self.why),
        }
    }
}
