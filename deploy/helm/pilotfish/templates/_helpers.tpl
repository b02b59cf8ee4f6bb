{{- define "pilotfish.labels" -}}
app.kubernetes.io/name: pilotfish
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "pilotfish.selector" -}}
app.kubernetes.io/name: pilotfish
{{- end }}

{{- define "pilotfish.deployment" -}}
{{ ternary "istiod" "pilotfish" .Values.istiodNames.enabled }}
{{- end }}

{{- define "pilotfish.webhook" -}}
admissionReviewVersions: [v1]
sideEffects: None
timeoutSeconds: 10
clientConfig:
  service: {name: pilotfish, namespace: {{ .namespace }}, path: {{ .path }}, port: 443}
{{- end }}
