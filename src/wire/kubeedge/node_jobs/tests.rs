//! The messages of both generations, in both directions.

use super::*;
use crate::limits::NODE_JOB_REPORT_BYTES_MAX;
use crate::model::time::Timestamp;

const V2: &str = "operations.kubeedge.io/v1alpha2/imageprepulljob/nightly/node/edge-1";

fn route(operation: &str, resource: &str) -> Route {
    let (operation, resource) = (operation.into(), resource.into());
    Route { operation, resource, ..Route::default() }
}

fn key(generation: Generation, kind: JobKind) -> JobKey {
    JobKey { generation, kind, name: "nightly".into(), node: "edge-1".into() }
}

fn texts(all: &[&str]) -> Vec<Box<str>> {
    all.iter().map(|text| Box::from(*text)).collect()
}

fn pre_pull() -> PrePullSpec {
    PrePullSpec {
        images: texts(&["nginx:1.27", "web"]),
        check_items: texts(&["disk"]),
        image_secret: "ns/name".into(),
        retry_times: 2,
    }
}

#[test]
fn a_request_of_v1alpha2_is_the_spec_of_the_job() {
    let content = r#"{"imagePrePullTemplate":{"images":["nginx:1.27","web"],"nodeNames":["edge-1"],
        "checkItems":["disk"],"imageSecrets":"ns/name","retryTimes":2,"concurrency":3}}"#;
    let read = decode_request(&route("Check", V2), content).expect("a job");
    assert_eq!(read.key, key(Generation::V1Alpha2, JobKind::PrePull));
    assert_eq!(read.action, JobAction::Check);
    assert_eq!(read.spec, Ok(JobSpec::PrePull(pre_pull())));

    let resource = "operations.kubeedge.io/v1alpha2/nodeupgradejob/nightly/node/edge-1";
    let content = r#"{"version":"v1.2.3","image":"registry/edged","imageDigestGatter":
        {"arm64":"sha256:00"},"requireConfirmation":true}"#;
    let read = decode_request(&route("Check", resource), content).expect("a job");
    let Ok(JobSpec::Upgrade(spec)) = read.spec else { panic!("{read:?}") };
    assert_eq!((&*spec.version, &*spec.image), ("v1.2.3", "registry/edged"));
    assert_eq!((&*spec.digests.amd64, &*spec.digests.arm64), ("", "sha256:00"));
    assert!(spec.require_confirmation);
    // Go writes an absent one so.
    let read = decode_request(&route("Check", resource), r#"{"imageDigestGatter":null}"#);
    assert_eq!(read.expect("a job").spec, Ok(JobSpec::Upgrade(UpgradeSpec::default())));

    let resource = "operations.kubeedge.io/v1alpha2/configupdatejob/nightly/node/edge-1";
    let read = decode_request(&route("Check", resource), r#"{"updateFields":{"a":"b"}}"#);
    assert_eq!(read.expect("a job").spec, Ok(JobSpec::ConfigUpdate));
}

#[test]
fn a_request_of_v1alpha1_asks_for_one_stage() {
    let resource = "prepull/nightly/node/edge-1";
    let item = r#"{"Images":["nginx:1.27","web"],"NodeName":"","Secret":"ns/name","RetryTimes":2,
        "CheckItems":["disk"]}"#;
    for (state, action) in
        [("", JobAction::Init), ("Init", JobAction::Init), ("Pulling", JobAction::Pull)]
    {
        let content =
            format!(r#"{{"TaskID":"nightly","Type":"prepull","State":"{state}","Item":{item}}}"#);
        let read = decode_request(&route("prepull", resource), &content).expect("a job");
        assert_eq!(read.key, key(Generation::V1Alpha1, JobKind::PrePull));
        assert_eq!((read.action, read.spec), (action, Ok(JobSpec::PrePull(pre_pull()))), "{state}");
    }
    let content = r#"{"State":"Checking","Item":{"CheckItem":["cpu"]}}"#;
    let read = decode_request(&route("prepull", resource), content).expect("a job");
    let expected = (JobAction::Check, Ok(JobSpec::Checks(texts(&["cpu"]))));
    assert_eq!((read.action, read.spec), expected);

    let content = r#"{"State":"BackingUp","Item":{"UpgradeID":"u","HistoryID":"h",
        "Version":"v1.2.3","UpgradeTool":"keadm","Image":"i","ImageDigest":"sha256:00",
        "RequireConfirmation":true}}"#;
    let read = decode_request(&route("upgrade", "upgrade/nightly/node/edge-1"), content);
    let read = read.expect("a job");
    assert_eq!((read.key.kind, read.action), (JobKind::Upgrade, JobAction::BackUp));
    let Ok(JobSpec::Upgrade(spec)) = read.spec else { panic!("{:?}", read.spec) };
    assert_eq!((&*spec.history_id, &*spec.image_digest), ("h", "sha256:00"));
    assert!(spec.require_confirmation);
}

#[test]
fn what_names_no_job_is_none() {
    for resource in [
        "",
        "task/nightly/node/edge-1",
        "prepull/nightly/pod/edge-1",
        "prepull//node/edge-1",
        "prepull/nightly/node/",
        "prepull/../node/edge-1",
        "configupdate/nightly/node/edge-1",
        "operations.kubeedge.io/v1/imageprepulljob/nightly/node/edge-1",
        "operations.kubeedge.io/v1alpha2/imageprepulljob/nightly/node/edge-1/x",
        "operations.kubeedge.io/v1alpha2/otherjob/nightly/node/edge-1",
    ] {
        assert_eq!(decode_request(&route("Check", resource), "{}"), None, "{resource}");
    }
}

#[test]
fn a_request_that_cannot_be_used_says_why() {
    let long = "x".repeat(NODE_JOB_TEXT_BYTES_MAX + 1);
    let many = vec!["a"; NODE_JOB_IMAGES_MAX + 1];
    for (operation, content, expected) in [
        ("Check", "{".to_owned(), "EOF while parsing an object"),
        ("Check", "[]".to_owned(), "got a list, expected a map"),
        ("Pull it", "{}".to_owned(), "operation: got \"Pull it\", expected Check"),
        ("", "{}".to_owned(), "operation: got \"\", expected Check"),
        (
            "Check",
            json!({"imagePrePullTemplate": {"images": [1]}}).to_string(),
            "imagePrePullTemplate.images[0]: got 1, expected text",
        ),
        (
            "Check",
            json!({"imagePrePullTemplate": {"images": many}}).to_string(),
            "images: got 65 entries, expected 64 at most",
        ),
        (
            "Check",
            json!({"imagePrePullTemplate": {"images": [long]}}).to_string(),
            "images: got 1025 bytes, expected 1024 at most",
        ),
    ] {
        let read = decode_request(&route(operation, V2), &content).expect("a job");
        let why = read.spec.expect_err(expected);
        assert!(why.starts_with(expected), "got {why:?}, expected {expected:?}");
        assert_eq!(read.action, JobAction::Check);
    }
    let read = decode_request(&route("prepull", "prepull/a/node/b"), r#"{"State":"Other"}"#);
    let read = read.expect("a job");
    assert_eq!(read.spec, Err("State: got \"Other\", expected a stage".into()));
    assert_eq!(read.action, JobAction::Init);
}

fn images() -> JobDetail {
    let result = |image: &str, result: Result<(), &str>| ImageResult {
        image: image.into(),
        result: result.map_err(Box::from),
    };
    JobDetail::Images(vec![result("nginx:1.27", Ok(())), result("web", Err("no such <tag>"))])
}

fn report(
    generation: Generation,
    kind: JobKind,
    action: JobAction,
    result: Result<(), &str>,
    detail: JobDetail,
) -> JobReport {
    let at = Timestamp::parse("2026-08-06T10:10:00Z");
    JobReport {
        key: key(generation, kind),
        action,
        result: result.map_err(Box::from),
        at: at.filter(|_| generation == Generation::V1Alpha2),
        detail,
    }
}

/// A report, and its operation, resource and content on the wire.
type Wire = (JobReport, &'static str, &'static str, &'static str);

fn reports_of_v1alpha2() -> Vec<Wire> {
    let of = |kind, action, result: Result<(), &str>, detail| {
        report(Generation::V1Alpha2, kind, action, result, detail)
    };
    let versions = || JobDetail::Versions { from: "v1.2.3".into(), to: "v1.2.4".into() };
    let (pull, upgrade) = (JobKind::PrePull, JobKind::Upgrade);
    let upgraded = "operations.kubeedge.io/v1alpha2/nodeupgradejob/nightly/node/edge-1";
    vec![
        (
            of(pull, JobAction::Pull, Err("some failed"), images()),
            "UpdateNodeActionStatus",
            V2,
            concat!(
                r#"{"action":"Pull","extend":"[{\"image\":\"nginx:1.27\",\"status\":\"True\"},{\""#,
                r#"image\":\"web\",\"reason\":\"no such \\u003ctag\\u003e\",\"status\":\"False\"}"#,
                r#"]","finishTime":"2026-08-06T10:10:00Z","reason":"some failed","succ":false}"#,
            ),
        ),
        (
            of(pull, JobAction::Check, Ok(()), JobDetail::Nothing),
            "UpdateNodeActionStatus",
            V2,
            concat!(
                r#"{"action":"Check","extend":"","finishTime":"2026-08-06T10:10:00Z","reason":"","#,
                r#""succ":true}"#,
            ),
        ),
        (
            of(upgrade, JobAction::Upgrade, Ok(()), versions()),
            "UpdateNodeActionStatus",
            upgraded,
            concat!(
                r#"{"action":"Upgrade","extend":"v1.2.3,v1.2.4","finishTime":"2026-08-06T10:10:00"#,
                r#"Z","reason":"","succ":true}"#,
            ),
        ),
    ]
}

fn reports_of_v1alpha1() -> Vec<Wire> {
    let of = |kind, action, result: Result<(), &str>, detail| {
        report(Generation::V1Alpha1, kind, action, result, detail)
    };
    let (pull, upgrade) = (JobKind::PrePull, JobKind::Upgrade);
    vec![
        (
            of(pull, JobAction::Init, Ok(()), JobDetail::Nothing),
            "prepull",
            "task/nightly/node/edge-1",
            concat!(
                r#"{"Action":"Success","Event":"Init","ExternalMessage":"","NodeName":"edge-1","R"#,
                r#"eason":"","State":"","Time":""}"#,
            ),
        ),
        (
            of(pull, JobAction::Pull, Err("some failed"), images()),
            "prepull",
            "task/nightly/node/edge-1",
            concat!(
                r#"{"Action":"Failure","Event":"Pull","ExternalMessage":"[{\"image\":\"nginx:1.27"#,
                r#"\",\"state\":\"Successful\"},{\"image\":\"web\",\"reason\":\"no such \\u003cta"#,
                r#"g\\u003e\",\"state\":\"Failed\"}]","NodeName":"edge-1","Reason":"some failed","#,
                r#""State":"","Time":""}"#,
            ),
        ),
        (
            of(upgrade, JobAction::WaitingConfirmation, Ok(()), JobDetail::Nothing),
            "upgrade",
            "task/nightly/node/edge-1",
            concat!(
                r#"{"Action":"Confirmation","Event":"Confirm","ExternalMessage":"","NodeName":"ed"#,
                r#"ge-1","Reason":"","State":"","Time":""}"#,
            ),
        ),
    ]
}

#[test]
fn reports_are_written_as_edge_core_does_and_read_again() {
    for (report, operation, resource, content) in
        reports_of_v1alpha2().into_iter().chain(reports_of_v1alpha1())
    {
        let written = encode_report(&report);
        assert_eq!((written.0, &*written.1, written.2.get()), (operation, resource, content));
        let read = decode_report(&route(operation, resource), content);
        assert_eq!(read, Some(Ok(report)), "{content}");
    }
}

#[test]
fn requests_that_the_controller_writes_are_read_alike() {
    let upgrade = UpgradeSpec {
        version: "v1.2.3".into(),
        image: "registry/edged".into(),
        require_confirmation: true,
        ..UpgradeSpec::default()
    };
    for generation in [Generation::V1Alpha1, Generation::V1Alpha2] {
        for (action, spec) in [
            (JobAction::Check, JobSpec::PrePull(pre_pull())),
            (JobAction::Pull, JobSpec::PrePull(pre_pull())),
            (JobAction::Check, JobSpec::Checks(texts(&["disk"]))),
            (JobAction::Upgrade, JobSpec::Upgrade(upgrade.clone())),
        ] {
            let kind = match &spec {
                JobSpec::Upgrade(_) => JobKind::Upgrade,
                _ => JobKind::PrePull,
            };
            // Each stage of v1alpha1 has its own content, and v1alpha2 has no stages.
            let is_stage = matches!(
                (action, &spec),
                (JobAction::Check, JobSpec::Checks(_)) | (JobAction::Pull | JobAction::Upgrade, _)
            );
            let is_possible = match generation {
                Generation::V1Alpha1 => is_stage,
                Generation::V1Alpha2 => !matches!(spec, JobSpec::Checks(_)),
            };
            if !is_possible {
                continue;
            }
            let key = key(generation, kind);
            let (operation, resource, content) = encode_request(&key, action, &spec);
            let read = decode_request(&route(operation, &resource), content.get());
            assert_eq!(read, Some(JobRequest { key, action, spec: Ok(spec) }), "{content}");
        }
    }
}

#[test]
fn a_hostile_report_is_refused_or_cut() {
    let report = |content: &str| decode_report(&route(REPORT, V2), content).expect("a report");
    for (content, expected) in [
        ("{}", "got \"\", expected an action"),
        (r#"{"action":"Dance"}"#, "got \"Dance\", expected an action"),
        (r#"{"action":"Pull","extend":"{}"}"#, "extend: got a map, expected a list"),
        (r#"{"action":"Pull","extend":"["}"#, "extend: EOF while parsing a list"),
        (r#"{"action":7}"#, "action: got 7, expected text"),
    ] {
        let why = report(content).expect_err(expected).to_string();
        assert!(why.starts_with(expected), "got {why:?}, expected {expected:?}");
    }
    let padding = "x".repeat(NODE_JOB_REPORT_BYTES_MAX);
    assert!(report(&json!({"action": "Check", "reason": padding}).to_string()).is_err());
    let long = "ä".repeat(NODE_JOB_TEXT_BYTES_MAX);
    let cut = report(&json!({"action": "Check", "reason": long}).to_string()).expect("a report");
    assert_eq!(cut.result.expect_err("failed").len(), NODE_JOB_TEXT_BYTES_MAX);
    let many = json!(vec![json!({"image": "a"}); NODE_JOB_IMAGES_MAX + 1]).to_string();
    assert!(report(&json!({"action": "Pull", "extend": many}).to_string()).is_err());
    // Go's pull of no image at all, and a time that is none.
    let empty = report(r#"{"action":"Pull","succ":true,"finishTime":"now","extend":"null"}"#);
    let empty = empty.expect("a report");
    assert_eq!((empty.at, empty.detail, empty.result), (None, JobDetail::Nothing, Ok(())));
}

#[test]
fn what_is_no_report_is_none() {
    for (operation, resource) in [
        ("Check", V2),
        (REPORT, "prepull/nightly/node/edge-1"),
        ("upgrade it", "task/nightly/node/edge-1"),
        ("prepull", "task/nightly/node/edge-1/x"),
        ("prepull", "task/../node/edge-1"),
    ] {
        assert_eq!(decode_report(&route(operation, resource), "{}"), None, "{resource}");
    }
    // As EdgeCore reports that it has the version already.
    let content = r#"{"NodeName":"edge-1","Event":"Upgrading","Action":"Success"}"#;
    let read = decode_report(&route("upgrade", "task/nightly/node/edge-1"), content);
    assert_eq!(read.expect("a report").expect("valid").action, JobAction::Upgrade);
}
