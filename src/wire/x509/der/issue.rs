//! DER that only a CA reads and writes.

use super::{Reader, Tag};
use crate::wire::x509::Fault;

impl Tag {
    pub(in crate::wire::x509) const UTF8: Self = Self(0x0c);
    /// `[0]` instead of the universal tag (IMPLICIT).
    pub(in crate::wire::x509) const CONTEXT_0: Self = Self(0x80);
    /// `[2]`, likewise.
    pub(in crate::wire::x509) const CONTEXT_2: Self = Self(0x82);
    /// `[7]`, likewise.
    pub(in crate::wire::x509) const CONTEXT_7: Self = Self(0x87);
    /// `[3]`
    pub(in crate::wire::x509) const FOURTH: Self = Self(0xa3);
}

impl<'a> Reader<'a> {
    /// The next value with its head, and a reader of its contents.
    pub(in crate::wire::x509) fn whole(
        &mut self,
        part: &'static str,
        tag: Tag,
    ) -> Result<(&'a [u8], Reader<'a>), Fault> {
        let from = self.at;
        let inside = self.enter(part, tag)?;
        Ok((&self.bytes[from..self.at], inside))
    }

    /// The next value, which must be this one.
    pub(in crate::wire::x509) fn expect(
        &mut self,
        tag: Tag,
        value: &[u8],
        what: &str,
    ) -> Result<(), Fault> {
        let at = self.at;
        if self.take(tag)? == value {
            return Ok(());
        }
        self.at = at;
        Err(self.fault(format!("got something else, expected {what}")))
    }

    /// The bytes of a bit string that is a whole number of them.
    pub(in crate::wire::x509) fn bits(&mut self) -> Result<&'a [u8], Fault> {
        let at = self.at;
        if let [0, bytes @ ..] = self.take(Tag::BITS)? {
            return Ok(bytes);
        }
        self.at = at;
        Err(self.fault("got some bits, expected whole bytes".to_owned()))
    }
}
