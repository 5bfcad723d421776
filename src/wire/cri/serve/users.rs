//! Ranges of users: the mappings of a user namespace, and of a mount in one.

use super::{choice, unknown, unsupported};
use crate::model::cri::UserRange;
use crate::wire::protobuf::{Malformed, Value, fields};

/// `UserNamespace`. `None`: the host's users.
pub(super) fn namespace(message: &[u8]) -> Result<Option<UserRange>, Malformed> {
    const FIELD: &str = "NamespaceOption.userns_options";
    let mut has_own = true;
    let mut users = [None; 2];
    for field in fields(message) {
        match field? {
            // POD, CONTAINER, NODE, TARGET
            (1, value) => {
                let modes = [Some(true), None, Some(false), None];
                has_own = choice(FIELD, value, &modes)?.ok_or_else(|| unsupported(FIELD))?;
            }
            (2, value) => add(&mut users[0], "userns_options.uids", value)?,
            (3, value) => add(&mut users[1], "userns_options.gids", value)?,
            (number, _) => return Err(unknown("UserNamespace", number)),
        }
    }
    let users = same("userns_options", users)?;
    match (has_own, users) {
        (true, None) => Err(Malformed(format!("{FIELD}: got no mapping, expected one"))),
        (false, Some(_)) => Err(Malformed(format!(
            "{FIELD}: got a mapping with the host's users (mode NODE), expected none"
        ))),
        (_, users) => Ok(users),
    }
}

/// An `IDMapping`, one of a list that may have one.
pub(super) fn add(
    range: &mut Option<UserRange>,
    name: &str,
    value: Value<'_>,
) -> Result<(), Malformed> {
    let (mut first, mut inside, mut count) = (0, 0, 0);
    for field in fields(value.bytes()?) {
        match field? {
            (1, value) => first = value.number()?,
            (2, value) => inside = value.number()?,
            (3, value) => count = value.number()?,
            (number, _) => return Err(unknown("IDMapping", number)),
        }
    }
    let wrong = |why: &str| Err(Malformed(format!("{name}: got {why}")));
    if range.is_some() {
        return wrong("several mappings, expected one");
    }
    if inside != 0 {
        return wrong(&format!("container_id {inside}, expected 0"));
    }
    let end = first.checked_add(count).and_then(|end| u32::try_from(end).ok());
    let (Ok(first), Ok(count), Some(_)) = (u32::try_from(first), u32::try_from(count), end) else {
        return wrong("a range of users that ends beyond 4294967294");
    };
    if first == 0 || count == 0 {
        return wrong("host_id or length 0, expected users without privileges");
    }
    *range = Some(UserRange { first, count });
    Ok(())
}

/// The range of users, which has to be that of groups as well.
pub(super) fn same(
    name: &str,
    [users, groups]: [Option<UserRange>; 2],
) -> Result<Option<UserRange>, Malformed> {
    if users == groups {
        return Ok(users);
    }
    Err(Malformed(format!(
        "{name}: got different mappings of users and of groups, expected the same"
    )))
}
