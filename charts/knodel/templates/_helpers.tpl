{{- /* Made by `make manifests` from manifests/ and tests/manifests/chart: do not edit. */ -}}
{{/* The image of the Deployments. */}}
{{- define "knodel.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}
