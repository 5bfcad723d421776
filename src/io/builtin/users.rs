//! Which user and groups a container's process has: as CRI asks, else as the image says, looked up
//! in the image's `/etc/passwd` and `/etc/group`.

use super::root::Root;
use crate::limits::IMAGE_USERS_BYTES_MAX;
use crate::model::cri::User as Wanted;
use crate::model::error::{Error, Input};
use crate::wire::oci::spec::User;

/// `image`: the image's own, `user` or `user:group`, each a name or a number.
pub fn look_up(root: &Root, wanted: &Wanted, image: &str) -> Result<User, Error> {
    let passwd = root.text("etc/passwd", IMAGE_USERS_BYTES_MAX)?;
    let group = root.text("etc/group", IMAGE_USERS_BYTES_MAX)?;
    Ok(choose(&passwd, &group, wanted, image)?)
}

fn choose(passwd: &str, group: &str, wanted: &Wanted, image: &str) -> Result<User, Input> {
    let from_image = wanted.uid.is_none() && wanted.name.is_empty();
    if from_image && wanted.gid.is_some() {
        let why = "got a group without a user";
        return Err(Input::other(why).at("run_as_group"));
    }
    let (user, of_group) = match wanted.uid {
        Some(uid) => (uid.to_string(), None),
        None if from_image => {
            let (user, group) = image.split_once(':').unwrap_or((image, ""));
            (user.to_owned(), Some(group).filter(|group| !group.is_empty()))
        }
        None => (wanted.name.to_string(), None),
    };
    let entry = entries(passwd).find(|entry| match user.parse::<u32>() {
        Ok(uid) => entry.id == uid,
        Err(_) => entry.name == user,
    });
    let uid = match (user.parse::<i64>(), &entry) {
        (Ok(uid), _) => id(uid, "run_as_user")?,
        (Err(_), _) if user.is_empty() => 0,
        (Err(_), Some(entry)) => entry.id,
        (Err(_), None) => {
            return Err(Input::quoted(&user, "a user in the image's /etc/passwd"));
        }
    };
    let gid = match (wanted.gid, of_group) {
        (Some(gid), _) => id(gid, "run_as_group")?,
        (None, Some(name)) => {
            let named = || entries(group).find(|entry| entry.name == name).map(|entry| entry.id);
            let found = name.parse().ok().or_else(named);
            found.ok_or_else(|| Input::quoted(name, "a group in the image's /etc/group"))?
        }
        (None, None) => entry.as_ref().map_or(0, |entry| entry.group),
    };
    let mut groups = vec![gid];
    for other in &wanted.groups {
        groups.push(id(*other, "supplemental_groups")?);
    }
    if let Some(entry) = entry.filter(|_| !wanted.strict_groups) {
        let has = |list: &str| list.split(',').any(|member| member == entry.name);
        let of_user = entries(group).filter(|group| has(group.members));
        groups.extend(of_user.map(|group| group.id));
    }
    groups.sort_unstable();
    groups.dedup();
    Ok(User { uid, gid, additional_gids: groups })
}

fn id(number: i64, field: &'static str) -> Result<u32, Input> {
    // The kernel takes the highest number for none.
    let fits = u32::try_from(number).ok().filter(|id| *id != u32::MAX);
    fits.ok_or_else(|| Input::new(number, "0 to 4294967294").at(field))
}

/// A line of either file.
struct Entry<'a> {
    name: &'a str,
    id: u32,
    /// Of a user.
    group: u32,
    /// Of a group.
    members: &'a str,
}

/// Lines of another form are skipped, as by the C library.
fn entries(text: &str) -> impl Iterator<Item = Entry<'_>> {
    text.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty() && !name.starts_with('#'))?;
        let id = fields.nth(1)?.parse().ok()?;
        let fourth = fields.next()?;
        Some(Entry { name, id, group: fourth.parse().unwrap_or(0), members: fourth })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "# comment:x:9:9\nroot:x:0:0:root:/root:/bin/sh\n\
        web:x:33:34::/:/bin/false\nbroken:x:y:1\nshort:x\n\nseven:x:7:70::/:\n";
    const GROUP: &str = "root:x:0:\nwww:x:34:\naudio:x:63:web,seven\nvideo:x:44:webmaster,web\n";

    fn chosen(wanted: &Wanted, image: &str) -> String {
        match choose(PASSWD, GROUP, wanted, image) {
            Ok(User { uid, gid, additional_gids }) => format!("{uid} {gid} {additional_gids:?}"),
            Err(wrong) => wrong.to_string(),
        }
    }

    #[test]
    fn the_users_of_an_image_are_looked_up() {
        let none = Wanted::default();
        for (image, expected) in [
            ("", "0 0 [0]"),
            ("root", "0 0 [0]"),
            ("web", "33 34 [34, 44, 63]"),
            ("33", "33 34 [34, 44, 63]"),
            ("7:audio", "7 63 [63]"),
            ("web:5", "33 5 [5, 44, 63]"),
            ("1000", "1000 0 [0]"),
            (":www", "0 34 [34]"),
            ("none", "got \"none\", expected a user in the image's /etc/passwd"),
            ("broken", "got \"broken\", expected a user in the image's /etc/passwd"),
            ("web:none", "got \"none\", expected a group in the image's /etc/group"),
            ("-1", "run_as_user: got -1, expected 0 to 4294967294"),
        ] {
            assert_eq!(chosen(&none, image), expected, "{image}");
        }
    }

    #[test]
    fn what_a_pod_asks_for_comes_before_the_image() {
        let of = |uid: Option<i64>, name: &str, gid: Option<i64>, groups: &[i64], strict| {
            let (name, groups, strict_groups) = (name.into(), groups.to_vec(), strict);
            chosen(&Wanted { uid, name, gid, groups, strict_groups }, "web:audio")
        };
        assert_eq!(of(Some(7), "web", None, &[], false), "7 70 [63, 70]");
        assert_eq!(of(None, "web", Some(9), &[8, 8], false), "33 9 [8, 9, 44, 63]");
        assert_eq!(of(None, "web", None, &[8], true), "33 34 [8, 34]");
        assert_eq!(of(Some(1000), "", Some(1001), &[77, 88], false), "1000 1001 [77, 88, 1001]");
        assert_eq!(of(None, "", None, &[5], false), "33 63 [5, 44, 63]");
        let wrong = "supplemental_groups: got 4294967295, expected 0 to 4294967294";
        assert_eq!(of(Some(0), "", None, &[0xffff_ffff], false), wrong);
        let wrong = "run_as_group: got a group without a user";
        assert_eq!(of(None, "", Some(1), &[], false), wrong);
    }

    #[test]
    fn files_that_are_too_large_are_refused() {
        let top = std::env::temp_dir().join(format!("edged-users-{}", std::process::id()));
        std::fs::create_dir_all(top.join("etc")).expect("folders");
        let root = Root::open(&top).expect("there");
        let none = look_up(&root, &Wanted::default(), "").expect("no files are needed");
        assert_eq!(none, User { uid: 0, gid: 0, additional_gids: vec![0] });
        let file = std::fs::File::create(top.join("etc/group")).expect("a file of ours");
        file.set_len(IMAGE_USERS_BYTES_MAX).expect("a hole");
        assert!(look_up(&root, &Wanted::default(), "").is_ok());
        file.set_len(IMAGE_USERS_BYTES_MAX + 1).expect("a hole");
        let why = look_up(&root, &Wanted::default(), "").expect_err("large").to_string();
        assert!(why.contains("got more than 1048576 bytes"), "{why}");
        std::fs::remove_dir_all(&top).expect("ours");
    }
}
