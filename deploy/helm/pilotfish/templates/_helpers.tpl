{{- /* The name of everything that a revision has for itself: `pilotfish`, or `pilotfish-REVISION`. */ -}}
{{- define "pilotfish.name" -}}
pilotfish{{ include "pilotfish.suffix" . }}
{{- end }}

{{- define "pilotfish.suffix" -}}
{{ with .Values.revision }}-{{ . }}{{ end }}
{{- end }}

{{- /* The value of istio.io/rev. */ -}}
{{- define "pilotfish.revision" -}}
{{ .Values.revision | default "pilotfish" }}
{{- end }}

{{- define "pilotfish.labels" -}}
app.kubernetes.io/name: {{ include "pilotfish.name" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "pilotfish.selector" -}}
app.kubernetes.io/name: {{ include "pilotfish.name" . }}
{{- end }}

{{- define "pilotfish.deployment" -}}
{{ ternary "istiod" "pilotfish" .Values.istiodNames.enabled }}{{ include "pilotfish.suffix" . }}
{{- end }}

{{- define "pilotfish.webhook" -}}
admissionReviewVersions: [v1]
sideEffects: None
timeoutSeconds: 10
clientConfig:
  service: {name: {{ .service }}, namespace: {{ .namespace }}, path: {{ .path }}, port: 443}
{{- end }}

{{- define "pilotfish.validation" -}}
# Pilotfish makes it Fail once it answers.
failurePolicy: Ignore
{{ include "pilotfish.webhook" (dict "service" (include "pilotfish.name" .) "namespace" .Release.Namespace "path" "/validate") }}
rules:
- apiGroups:
  - extensions.istio.io
  - gateway.networking.k8s.io
  - multicluster.x-k8s.io
  - networking.istio.io
  - security.istio.io
  - telemetry.istio.io
  apiVersions: ["*"]
  resources: ["*"]
  operations: [CREATE, UPDATE]
{{- end }}

{{- define "pilotfish.injection" -}}
failurePolicy: Fail
reinvocationPolicy: Never
{{ include "pilotfish.webhook" (dict "service" (include "pilotfish.name" .) "namespace" .Release.Namespace "path" "/inject") }}
rules:
- apiGroups: [""]
  apiVersions: [v1]
  resources: [pods]
  operations: [CREATE]
{{- end }}

{{- /* The webhooks of a revision or a tag (`label`); istioctl knows them by their names. `default`: also Pods and namespaces that ask for a
sidecar without naming a revision. */ -}}
{{- define "pilotfish.injectors" -}}
{{- if .default }}
# Pods of namespaces that ask for sidecars, unless a pod declines. The namespaces of the cluster itself never ask: it must start without
# Pilotfish.
- name: namespace.sidecar-injector.istio.io
  {{- include "pilotfish.injection" .root | nindent 2 }}
  namespaceSelector:
    matchExpressions:
    - {key: istio-injection, operator: In, values: [enabled]}
    - {key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system, kube-public, kube-node-lease]}
  objectSelector:
    matchExpressions:
    - {key: sidecar.istio.io/inject, operator: NotIn, values: ["false"]}
{{- end }}
# The same by revision: for namespaces that move from one injector to another.
- name: rev.namespace.sidecar-injector.istio.io
  {{- include "pilotfish.injection" .root | nindent 2 }}
  namespaceSelector:
    matchExpressions:
    - {key: istio.io/rev, operator: In, values: [{{ .label | quote }}]}
    - {key: istio-injection, operator: DoesNotExist}
    - {key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system, kube-public, kube-node-lease]}
  objectSelector:
    matchExpressions:
    - {key: sidecar.istio.io/inject, operator: NotIn, values: ["false"]}
# Pods that ask for this revision themselves, in namespaces that say nothing.
- name: rev.object.sidecar-injector.istio.io
  {{- include "pilotfish.injection" .root | nindent 2 }}
  namespaceSelector:
    matchExpressions:
    - {key: istio-injection, operator: DoesNotExist}
    - {key: istio.io/rev, operator: DoesNotExist}
    - {key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system, kube-public, kube-node-lease]}
  objectSelector:
    matchExpressions:
    - {key: sidecar.istio.io/inject, operator: NotIn, values: ["false"]}
    - {key: istio.io/rev, operator: In, values: [{{ .label | quote }}]}
{{- if .default }}
# Pods that ask for a sidecar themselves, in namespaces that say nothing.
- name: object.sidecar-injector.istio.io
  {{- include "pilotfish.injection" .root | nindent 2 }}
  namespaceSelector:
    matchExpressions:
    - {key: istio-injection, operator: DoesNotExist}
    - {key: istio.io/rev, operator: DoesNotExist}
    - {key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system, kube-public, kube-node-lease]}
  objectSelector:
    matchExpressions:
    - {key: sidecar.istio.io/inject, operator: In, values: ["true"]}
    - {key: istio.io/rev, operator: DoesNotExist}
{{- end }}
{{- end }}
