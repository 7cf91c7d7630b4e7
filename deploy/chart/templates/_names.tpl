{{- define "sonorant.name" -}}
{{- if contains "sonorant" .Release.Name }}{{ .Release.Name }}{{ else }}{{ printf "%s-sonorant" .Release.Name }}{{ end }}
{{- end }}

{{- define "sonorant.selector" -}}
app.kubernetes.io/name: sonorant
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "sonorant.gateway-selector" -}}
app.kubernetes.io/name: sonorant-gateway
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "sonorant.labels" -}}
{{ include "sonorant.selector" . }}
{{ include "sonorant.common-labels" . }}
{{- end }}

{{- define "sonorant.gateway-labels" -}}
{{ include "sonorant.gateway-selector" . }}
{{ include "sonorant.common-labels" . }}
{{- end }}

{{- define "sonorant.common-labels" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "sonorant.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "sonorant.pod-security" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "sonorant.container-security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}
