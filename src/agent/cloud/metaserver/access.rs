//! Who may do what at MetaServer, where the feature gate `requireAuthorization` is on: the token
//! that a client shows, and the rules that the cloud has sent for its service account
//! (metaserver.md, section 12).
//!
//! A token is believed if one of the configured keys has signed it, or if it is one that this node
//! has handed out to a pod: such a token came from the API server, through the cloud. Rules are
//! those of Kubernetes' RBAC. What no rule allows is refused, and so is everything of a service
//! account for which no rules have come.

use super::super::meta::Meta;
use super::super::rows::{ACCESS, StoredObject};
use crate::agent::time::Now;
use crate::limits::JWT_LEEWAY_S;
use crate::model::access::{Access, Attributes};
use crate::model::message::Resource;
use crate::model::metaserver::{Authorization, Bearer, Call, Caller, Claims, Failure};
use crate::model::token;

/// Whether this client may do this; an error is the answer that it gets.
pub(super) fn judge(
    now: Now,
    meta: &Meta,
    settings: &Authorization,
    caller: &Caller,
    call: &Call,
) -> Result<(), Failure> {
    let wanted = call.attributes();
    let Caller::Bearer(bearer) = caller else {
        return Err(forbidden("system:anonymous", &wanted, "show the token of a service account"));
    };
    let now_s = now.timestamp().map(|now| now.0);
    authenticate(now_s, meta, settings, bearer)
        .map_err(|why| Failure::new(401, "Unauthorized", format!("Unauthorized: {why}")))?;
    let Claims { namespace, account, account_uid, .. } = &bearer.claims;
    let user = format!("system:serviceaccount:{namespace}:{account}");
    let Some(access) = access_of(meta, namespace, account) else {
        let why = "the cloud has sent no rules of this service account to the node";
        return Err(forbidden(&user, &wanted, why));
    };
    let known = &access.spec.account_uid;
    if !known.is_empty() && known != account_uid {
        let why = format!("service account UID ({known}) does not match claim ({account_uid})");
        return Err(Failure::new(401, "Unauthorized", format!("Unauthorized: {why}")));
    }
    if access.allows(&wanted) { Ok(()) } else { Err(forbidden(&user, &wanted, "")) }
}

/// The rules of a service account: CloudCore names the object after it, in its namespace.
fn access_of<'a>(meta: &'a Meta, namespace: &str, account: &str) -> Option<&'a Access> {
    let key = Resource { namespace: Some(namespace), kind: ACCESS, name: account }.to_string();
    let Some(StoredObject::Access(access)) = meta.stored_object(&key) else { return None };
    let of = &access.spec.service_account.metadata;
    (*of.namespace == *namespace && *of.name == *account).then_some(&**access)
}

/// `Err`: why the bearer is not who he says. `now_s`: seconds since 1970.
fn authenticate(
    now_s: Option<i64>,
    meta: &Meta,
    settings: &Authorization,
    bearer: &Bearer,
) -> Result<(), String> {
    let Bearer { claims, is_signed, .. } = bearer;
    if !is_signed && !is_handed_out(meta, bearer) {
        let keys = if settings.key_files.is_empty() { "" } else { ", and no key has signed it" };
        return Err(format!("this node has handed out no such token to one of its pods{keys}"));
    }
    if !settings.issuers.contains(&claims.issuer) {
        let (got, expected) = (&claims.issuer, settings.issuers.join(" or "));
        return Err(format!("got the issuer {got:?}, expected {expected}"));
    }
    let audiences = settings.audiences();
    if !claims.audiences.is_empty() && !claims.audiences.iter().any(|it| audiences.contains(it)) {
        let (got, expected) = (claims.audiences.join(" "), audiences.join(" or "));
        return Err(format!("got the audiences {got:?}, expected {expected}"));
    }
    within_time(now_s, claims)?;
    if claims.namespace.is_empty() || claims.account.is_empty() {
        return Err("the token is of no service account".to_owned());
    }
    if claims.has_secret {
        return Err("the token is bound to a Secret, which the node does not know".to_owned());
    }
    let Some((name, uid)) = &claims.pod else { return Ok(()) };
    let key = Resource { namespace: Some(&claims.namespace), kind: "pod", name }.to_string();
    if let Some(StoredObject::Pod(pod)) = meta.stored_object(&key)
        && *pod.metadata.uid == **uid
    {
        return Ok(());
    }
    Err(format!("the pod {}/{name} of the token is not on this node", claims.namespace))
}

/// Whether it is a token of one of the node's pods, or was until it was replaced.
fn is_handed_out(meta: &Meta, bearer: &Bearer) -> bool {
    // Only the few tokens of the pod that it names are compared.
    let Some((_, uid)) = bearer.claims.pod.as_ref().filter(|(_, uid)| !uid.is_empty()) else {
        return false;
    };
    meta.tokens().filter(|token| *token.pod_uid() == **uid).any(|known| {
        known.replaced.contains(&bearer.digest)
            || *token::digest(&known.status.token) == *bearer.digest
    })
}

fn within_time(now_s: Option<i64>, claims: &Claims) -> Result<(), String> {
    let now_s = now_s.ok_or("the node does not know the time")?;
    let ends_at = claims.ends_at.ok_or("got a token without an end, expected exp")?;
    if now_s > ends_at.saturating_add(JWT_LEEWAY_S) {
        return Err("service account token has expired".to_owned());
    }
    if claims.begins_at.is_some_and(|from| now_s < from.saturating_sub(JWT_LEEWAY_S)) {
        return Err("service account token is not valid yet".to_owned());
    }
    Ok(())
}

/// As the API server says it; `why`: what the node adds.
fn forbidden(user: &str, wanted: &Attributes<'_>, why: &str) -> Failure {
    let Attributes { verb, group, resource, subresource, namespace, name } = wanted;
    let dotted = if group.is_empty() { String::new() } else { format!(".{group}") };
    let name = if name.is_empty() { String::new() } else { format!(" {name:?}") };
    let slashed = if subresource.is_empty() { String::new() } else { format!("/{subresource}") };
    let place = if namespace.is_empty() {
        "at the cluster scope".to_owned()
    } else {
        format!("in the namespace {namespace:?}")
    };
    let why = if why.is_empty() { String::new() } else { format!(": {why}") };
    let message = format!(
        "{resource}{dotted}{name} is forbidden: User {user:?} cannot {verb} resource \
         \"{resource}{slashed}\" in API group {group:?} {place}{why}"
    );
    Failure::new(403, "Forbidden", message)
}
