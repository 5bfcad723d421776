//! Tokens and RBAC are not built in (feature `metaserver-auth`): the configuration refuses their
//! gate, and whoever came here in spite of that gets nothing.

use super::super::meta::Meta;
use crate::agent::time::Now;
use crate::model::metaserver::{Authorization, Call, Caller, Failure};

pub(super) fn judge(
    _: Now,
    _: &Meta,
    _: &Authorization,
    _: &Caller,
    _: &Call,
) -> Result<(), Failure> {
    Err(Failure::new(403, "Forbidden", "expected a program with the feature metaserver-auth"))
}
