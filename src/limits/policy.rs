//! Limits of the rules of service accounts.

/// JSON values in the rules of one service account: some hundred rules. All of them are compared
/// with each request of a pod.
pub const ACCESS_VALUES_MAX: usize = 8 << 10;
/// Bytes of the rules of one service account: so many values of thirty bytes, and half of a message
/// to a gateway with little memory.
#[cfg(feature = "controller")]
pub const ACCESS_BYTES_MAX: usize = 256 << 10;
/// Bindings of one service account, also of roles that do not exist: with ten values each, those of
/// more do not fit. Looking for them takes microseconds each, for each account that they concern.
#[cfg(feature = "controller")]
pub const ACCESS_BINDINGS_MAX: usize = 768;
/// Bytes of all service accounts, roles and bindings in memory: those of a cluster with some ten
/// thousand of them. Beyond, no account has rights on a node.
#[cfg(feature = "controller")]
pub const POLICY_BYTES_MAX: usize = 64 << 20;
/// Bytes that one of these objects takes beside its text: its names in the indexes.
#[cfg(feature = "controller")]
pub const POLICY_OBJECT_BYTES: usize = 512;
/// Bytes that a subject of a binding takes in the indexes.
#[cfg(feature = "controller")]
pub const POLICY_SUBJECT_BYTES: usize = 256;
/// Service accounts whose rules are put together in one step: some milliseconds.
#[cfg(feature = "controller")]
pub const POLICY_ACCOUNTS_PER_STEP: usize = 32;
/// Service accounts with too many rules that `status` names, and that are logged.
#[cfg(feature = "controller")]
pub const POLICY_REFUSED_SHOWN_MAX: usize = 16;
