//! Capabilities as sets of bits, and their names (capabilities(7)).

use crate::model::error::Input;

/// A set: bit `n` is the kernel's capability number `n`, as in `/proc/self/status`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities(pub u64);

impl Capabilities {
    /// What a container has that asks for nothing: containerd's default.
    pub const DEFAULT: Self = Self(
        1 << CHOWN
            | 1 << DAC_OVERRIDE
            | 1 << FOWNER
            | 1 << FSETID
            | 1 << KILL
            | 1 << SETGID
            | 1 << SETUID
            | 1 << SETPCAP
            | 1 << NET_BIND_SERVICE
            | 1 << NET_RAW
            | 1 << SYS_CHROOT
            | 1 << MKNOD
            | 1 << AUDIT_WRITE
            | 1 << SETFCAP,
    );

    /// The set of a container: the default, with `add`, without `drop`. `ALL` in either counts
    /// first, so that single names change it. Names are without `CAP_`, as CRI has them; those of
    /// `add` must be in `machine`, and only what is there is in the result.
    pub fn of(add: &[String], drop: &[String], machine: Self) -> Result<Self, Input> {
        let has_all = |names: &[String]| names.iter().any(|name| is_all(name));
        let mut set = if has_all(drop) {
            0
        } else if has_all(add) {
            machine.0
        } else {
            Self::DEFAULT.0 & machine.0
        };
        for name in add.iter().filter(|name| !is_all(name)) {
            let bit = 1 << number(name).map_err(|wrong| wrong.at("add_capabilities"))?;
            if machine.0 & bit == 0 {
                let expected = "a capability that the runtime has itself";
                return Err(Input::quoted(name, expected).at("add_capabilities"));
            }
            set |= bit;
        }
        for name in drop.iter().filter(|name| !is_all(name)) {
            set &= !(1 << number(name).map_err(|wrong| wrong.at("drop_capabilities"))?);
        }
        Ok(Self(set))
    }

    /// As OCI writes them, by number. Numbers that this program has no name for are left out.
    pub fn names(self) -> Vec<String> {
        let named = NAMES.split_ascii_whitespace().enumerate();
        named.filter(|(n, _)| self.0 & 1 << n != 0).map(|(_, name)| format!("CAP_{name}")).collect()
    }

    /// Whether it has this one, named without `CAP_`.
    pub fn has(self, name: &str) -> bool {
        number(name).is_ok_and(|n| self.0 & 1 << n != 0)
    }
}

fn is_all(name: &str) -> bool {
    name.eq_ignore_ascii_case("ALL")
}

fn number(name: &str) -> Result<usize, Input> {
    let plain = name.strip_prefix("CAP_").unwrap_or(name);
    let found = NAMES.split_ascii_whitespace().position(|known| known.eq_ignore_ascii_case(plain));
    found.ok_or_else(|| Input::quoted(name, "a capability's name"))
}

/// By number, from 0 on.
const NAMES: &str = "CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP \
    LINUX_IMMUTABLE NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE \
    SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME \
    SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG \
    WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE";

const CHOWN: u32 = 0;
const DAC_OVERRIDE: u32 = 1;
const FOWNER: u32 = 3;
const FSETID: u32 = 4;
const KILL: u32 = 5;
const SETGID: u32 = 6;
const SETUID: u32 = 7;
const SETPCAP: u32 = 8;
const NET_BIND_SERVICE: u32 = 10;
const NET_RAW: u32 = 13;
const SYS_CHROOT: u32 = 18;
const MKNOD: u32 = 27;
const AUDIT_WRITE: u32 = 29;
const SETFCAP: u32 = 31;

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|&name| name.to_owned()).collect()
    }

    const MACHINE: Capabilities = Capabilities((1 << 41) - 1);

    #[test]
    fn the_default_is_that_of_containerd() {
        let set = Capabilities::of(&[], &[], MACHINE).expect("the default").names();
        let expected = "CAP_CHOWN CAP_DAC_OVERRIDE CAP_FOWNER CAP_FSETID CAP_KILL CAP_SETGID \
            CAP_SETUID CAP_SETPCAP CAP_NET_BIND_SERVICE CAP_NET_RAW CAP_SYS_CHROOT CAP_MKNOD \
            CAP_AUDIT_WRITE CAP_SETFCAP";
        assert_eq!(set.join(" "), expected);
    }

    #[test]
    fn names_are_added_and_dropped_in_this_order() {
        let few = Capabilities((1 << CHOWN) | (1 << 12));
        for (add, drop, machine, expected) in [
            (&["NET_ADMIN"][..], &[][..], few, "CAP_CHOWN CAP_NET_ADMIN"),
            (&["net_admin", "CAP_CHOWN"], &["CHOWN"], few, "CAP_NET_ADMIN"),
            (&["ALL"], &["CHOWN"], few, "CAP_NET_ADMIN"),
            (&["CHOWN"], &["ALL"], few, "CAP_CHOWN"),
            (&["ALL"], &["ALL"], few, ""),
            (&["all"], &[], few, "CAP_CHOWN CAP_NET_ADMIN"),
        ] {
            let set = Capabilities::of(&names(add), &names(drop), machine).expect("known names");
            assert_eq!(set.names().join(" "), expected, "{add:?} {drop:?}");
        }
    }

    #[test]
    fn a_name_that_is_none_or_that_the_machine_lacks_is_refused() {
        let why = |add: &[&str], drop: &[&str], machine| {
            Capabilities::of(&names(add), &names(drop), machine).expect_err("refused").to_string()
        };
        assert_eq!(
            why(&["FLY"], &[], MACHINE),
            "add_capabilities: got \"FLY\", expected a capability's name"
        );
        assert!(why(&[], &["FLY"], MACHINE).starts_with("drop_capabilities: got"));
        assert!(why(&["BPF"], &[], Capabilities(1)).contains("expected a capability that the"));
        assert!(MACHINE.has("CHECKPOINT_RESTORE") && !Capabilities(1).has("BPF"));
    }
}
