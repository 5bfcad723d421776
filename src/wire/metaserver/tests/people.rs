//! Requests for logs, commands and restarts, as keadm and kubectl send them.

use super::{Asked, Piece, reply, request};
use crate::limits::METASERVER_RESTARTS_MAX;
use crate::model::metaserver::{Call, Failure, Messages, MetaServerSettings, Reply};
use crate::wire::http1::call;

fn asked(
    method: &str,
    target: &str,
    (more, body): (&str, &str),
    settings: &MetaServerSettings,
) -> Result<Call, Failure> {
    let length = body.len();
    let text = format!(
        "{method} {target} HTTP/1.1\r\nHost: localhost\r\nAccept: application/json, */*\r\n{more}\
         Content-Length: {length}\r\n\r\n{body}"
    );
    let (call, _) = call::call(text.as_bytes(), 1 << 20).expect("a request").expect("all of it");
    match request::read(&call, settings)? {
        Asked::Call(call) => Ok(call),
        known @ Asked::Known(..) => panic!("{known:?}"),
    }
}

fn open() -> MetaServerSettings {
    MetaServerSettings { keadm_ctl: true, ..MetaServerSettings::default() }
}

const POD: &str = "/api/v1/namespaces/ns/pods/p";

#[test]
fn nobody_gets_them_unless_somebody_has_said_so_or_shows_a_token() {
    let all = [
        ("GET", format!("{POD}/log"), ""),
        ("POST", format!("{POD}/exec?command=ls"), ""),
        ("POST", "/api/v1/namespaces/ns/pods/restart".to_owned(), "[\"p\"]"),
    ];
    let tokens = MetaServerSettings { requires_authorization: true, ..Default::default() };
    for (method, target, body) in &all {
        for closed in [
            MetaServerSettings::default(),
            MetaServerSettings { writes: true, ..Default::default() },
        ] {
            let failure = asked(method, target, ("", body), &closed).expect_err(target);
            assert_eq!((failure.code, failure.reason), (403, "Forbidden"), "{target}");
            assert!(failure.message.contains("metaServer.keadmCtl"), "{}", failure.message);
        }
        for settings in [open(), tokens.clone()] {
            let got = asked(method, target, ("", body), &settings);
            let is_there = cfg!(feature = "streams") || target.ends_with("restart");
            assert_eq!(got.map_or_else(|it| it.code, |_| 200), if is_there { 200 } else { 501 });
        }
    }
}

#[test]
fn a_restart_names_pods_and_no_more_than_there_may_be() {
    let restart = "/api/v1/namespaces/ns/pods/restart";
    let of = |body: &str| match asked("POST", restart, ("", body), &open()) {
        Ok(Call::Restart { namespace, pods }) => {
            assert_eq!(&*namespace, "ns");
            Ok(pods.join(" "))
        }
        Ok(other) => panic!("{other:?}"),
        Err(failure) => Err(failure.code),
    };
    assert_eq!(of("[\"a\",\"b\"]"), Ok("a b".to_owned()));
    assert_eq!(of("[]"), Ok(String::new()));
    let many = |count| format!("[{}]", vec!["\"p\""; count].join(","));
    assert!(of(&many(METASERVER_RESTARTS_MAX)).is_ok());
    for wrong in
        ["", "{}", "\"a\"", "[1]", "[\"\"]", "[\"a/b\"]", &many(METASERVER_RESTARTS_MAX + 1)]
    {
        assert_eq!(of(wrong), Err(400), "{wrong}");
    }
    let call = asked("POST", restart, ("", "[]"), &open()).expect("a restart");
    let wanted = call.attributes();
    assert_eq!(
        (wanted.verb, wanted.resource, wanted.namespace, wanted.name),
        ("create", "pods", "ns", "restart")
    );
}

#[test]
fn what_has_become_of_pods_is_said_in_lists_that_are_not_empty() {
    let body = |messages: Messages| {
        let pieces = reply::pieces(Reply::Messages(messages));
        let [Piece::Bytes(bytes), _] = &pieces[..] else { panic!("{pieces:?}") };
        let text = String::from_utf8(bytes.clone()).expect("text");
        assert!(
            text.starts_with("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"),
            "{text}"
        );
        text.split_once("\r\n\r\n").expect("a head").1.to_owned()
    };
    assert_eq!(body(Messages::default()), "{}");
    let (done, errors) = (vec!["a".to_owned()], vec!["b".to_owned()]);
    assert_eq!(
        body(Messages { done, errors }),
        "{\"LogMessages\":[\"a\"],\"errMessages\":[\"b\"]}"
    );
}

#[cfg(feature = "streams")]
mod streams {
    use super::*;
    use crate::model::cri::Pipes;
    use crate::model::stream::{LogOptions, PodName, StreamRequest};
    use crate::wire::kubelet::Form;
    use crate::wire::metaserver::people::form;

    fn stream(method: &str, target: &str, more: &str) -> Result<(StreamRequest, String), u16> {
        let call = asked(method, target, (more, ""), &open()).map_err(|failure| failure.code)?;
        let wanted = call.attributes();
        let rule =
            format!("{} {}/{} {}", wanted.verb, wanted.resource, wanted.subresource, wanted.name);
        assert_eq!(wanted.namespace, "ns");
        let Call::Stream(request) = call else { panic!("{call:?}") };
        Ok((*request, rule))
    }

    fn pod() -> PodName {
        PodName { namespace: "ns".into(), name: "p".into(), uid: None }
    }

    #[test]
    fn a_log_is_json_unless_it_is_followed() {
        let target = format!("{POD}/log?container=c&tailLines=5&insecureSkipTLSVerifyBackend=true");
        let (request, rule) = stream("GET", &target, "").expect("a log");
        assert_eq!(rule, "get pods/log p");
        let options = LogOptions { tail: Some(5), ..LogOptions::default() };
        assert_eq!(request, StreamRequest::Logs { pod: pod(), container: "c".into(), options });
        assert_eq!(form(&request), Form::LogMessages);
        let (followed, _) = stream("GET", &format!("{POD}/log?follow=true"), "").expect("a log");
        assert_eq!(form(&followed), Form::Text);
        assert_eq!(stream("GET", &format!("{POD}/log?tailLines=x"), ""), Err(400));
        assert_eq!(stream("GET", &format!("{POD}/log?limitBytes=0"), ""), Err(422));
        assert_eq!(stream("POST", &format!("{POD}/log"), ""), Err(405));
        assert_eq!(stream("GET", "/api/v1/namespaces/../pods/p/log", ""), Err(404));
    }

    #[test]
    fn a_command_is_relayed_with_an_upgrade_and_else_answered_whole() {
        let target = format!("{POD}/exec?command=sh&command=-c&command=echo+a%2Fb&container=c");
        let (request, rule) = stream("POST", &target, "").expect("a command");
        assert_eq!((&*rule, form(&request)), ("create pods/exec p", Form::CommandMessages));
        let command = ["sh", "-c", "echo a/b"].map(str::to_owned).to_vec();
        let (pod, container) = (pod(), "c".into());
        assert_eq!(request, StreamRequest::Command { pod, container, command });
        let upgrade = "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n";
        let target = format!("{target}&stdin=true&stdout=true&tty=true");
        for method in ["POST", "GET"] {
            let (request, rule) = stream(method, &target, upgrade).expect("an exec");
            assert_eq!((&*rule, form(&request)), ("create pods/exec p", Form::Relayed));
            let StreamRequest::Exec { pipes, .. } = request else { panic!("{request:?}") };
            assert_eq!(pipes, Pipes { stdin: true, stdout: true, stderr: false, tty: true });
        }
        assert_eq!(stream("POST", &target, ""), Err(400), "a terminal without an upgrade");
        assert_eq!(stream("GET", &format!("{POD}/exec?command=ls"), ""), Err(405));
        assert_eq!(stream("POST", &format!("{POD}/exec?command=ls"), upgrade), Err(400));
    }
}

#[cfg(feature = "devices")]
#[test]
fn a_device_is_edited_by_a_put_of_the_whole_object_and_by_nobody_unless_somebody_has_said_so() {
    let target = "/apis/devices.kubeedge.io/v1beta1/namespaces/ns/devices/d";
    let body = r#"{"kind":"Device","apiVersion":"devices.kubeedge.io/v1beta1","spec":{}}"#;
    let put = |target: &str, body: &str, settings: &MetaServerSettings| match asked(
        "PUT",
        target,
        ("Content-Type: application/json\r\n", body),
        settings,
    ) {
        Ok(call @ Call::EditDevice(_)) => {
            let of = call.attributes();
            let name = [of.verb, of.group, of.resource, of.namespace, of.name].join(" ");
            Ok((name, of.subresource.to_owned()))
        }
        Ok(Call::Write(write)) => Ok((write.verb.to_owned(), write.subresource.to_string())),
        Ok(other) => panic!("{other:?}"),
        Err(failure) => Err((failure.code, failure.message)),
    };
    let tokens = MetaServerSettings { requires_authorization: true, ..Default::default() };
    let wanted = "update devices.kubeedge.io devices ns d".to_owned();
    for settings in [open(), tokens, MetaServerSettings { writes: true, ..open() }] {
        assert_eq!(put(target, body, &settings), Ok((wanted.clone(), String::new())));
    }
    let (code, why) = put(target, body, &MetaServerSettings::default()).expect_err("closed");
    assert!(code == 403 && why.contains("metaServer.keadmCtl"), "{code} {why}");
    // Where programs may write to the cloud, and none may do this, it is as before.
    let writes = MetaServerSettings { writes: true, ..Default::default() };
    assert_eq!(put(target, body, &writes), Ok(("update".to_owned(), String::new())));
    // The status is the cloud's, and so are other objects.
    let settings = MetaServerSettings { writes: true, ..open() };
    let status = put(&format!("{target}/status"), body, &settings);
    assert_eq!(status, Ok(("updatestatus".to_owned(), "status".to_owned())));
    let model = body.replace("\"Device\"", "\"DeviceModel\"");
    let other = put(&target.replace("devices/d", "devicemodels/d"), &model, &settings);
    assert_eq!(other, Ok(("update".to_owned(), String::new())));
    for (target, body) in [
        (target.to_owned(), model.as_str()),
        (target.to_owned(), ""),
        (format!("{target}?dryRun=All"), body),
    ] {
        assert_eq!(put(&target, body, &open()).map_err(|it| it.0), Err(400), "{target} {body}");
    }
}
