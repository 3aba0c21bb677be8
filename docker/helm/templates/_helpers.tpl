{{- define "spillway.labels" -}}
app.kubernetes.io/name: spillway
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "spillway.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* What every pod may: nothing that its programs do not need. */}}
{{- define "spillway.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
# Each time, the files of the state would become readable for the group, and the gateway refuses keys that others can read.
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "spillway.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* The config: the values', with the parts that belong to the chart. */}}
{{- define "spillway.config" -}}
{{- $api := dict "listen" "0.0.0.0:8088" }}
{{- if .Values.tls.secret }}
{{- $_ := set $api "tls" (dict "certificate" "/etc/spillway-tls/tls.crt" "key" "/etc/spillway-tls/tls.key") }}
{{- else if .Values.tls.insecure }}
{{- $_ := set $api "insecure" true }}
{{- else }}
{{- fail "the API needs a certificate: set tls.secret to a Secret of type kubernetes.io/tls, or tls.insecure to true" }}
{{- end }}
{{- $own := dict "gateway" (dict "state_dir" "/var/lib/spillway/state" "api" $api) }}
{{- if .Values.spark.enabled }}
{{- $_ := set $own "private" (dict "spark" (dict "master" (printf "spark://%s-spark-master:7077" .Release.Name))) }}
{{- end }}
{{- mergeOverwrite (deepCopy .Values.config) $own | toYaml }}
{{- end }}
